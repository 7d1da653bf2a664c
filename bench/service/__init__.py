"""Measures the service: each line is a ratio to a peer, or to itself, in one run on one machine."""
