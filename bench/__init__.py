"""Measurements and trials by fire: too long for `make test`, run by `make bench` and `make chaos`."""
