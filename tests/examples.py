"""How many examples hypothesis draws."""

from __future__ import annotations

from hypothesis import settings

FEW, MANY = 25, 400  # of a test that names no number: in `make test`, in `make chaos`


def examples(count: int) -> settings:
    """So many examples in `make test`, and as many times more in `make chaos` as of any other test."""
    return settings(max_examples=count * settings().max_examples // FEW, deadline=None)
