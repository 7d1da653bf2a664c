"""The peers, each set up as its documentation recommends; they run in the virtual environment of the benchmarks."""
