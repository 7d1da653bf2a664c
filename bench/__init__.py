"""Benchmarks and chaos tests, which take too long for `make test`; run by `make bench` and `make chaos`."""
