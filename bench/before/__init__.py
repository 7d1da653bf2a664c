"""CPU time of this tree beside that of an earlier revision: `python -m bench.before --base REV`."""
