"""Runs handlers: warm child processes, what they may touch, and how they are watched."""
