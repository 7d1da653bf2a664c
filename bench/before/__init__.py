"""Compares the CPU time of this tree with that of an earlier revision: `python -m bench.before --base REV`."""
