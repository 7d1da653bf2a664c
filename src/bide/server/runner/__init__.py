"""Runs jobs on this machine: claims them, gives them to child processes, and stores their outcomes. `runner.Runner` is the
pipeline; it uses the other modules, and none of them knows it.
"""
