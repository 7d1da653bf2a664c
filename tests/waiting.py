"""Waiting in tests for what another process or thread does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")
TIMEOUT = 30.0
SHORTEST, LONGEST = 0.01, 0.05  # seconds between two looks


def until(
    look: Callable[[], T | Literal[False] | None], what: str = "", *, timeout: float = TIMEOUT
) -> T:
    """Calls `look` until it returns something true, and returns that. `what`: for the message of a failure."""
    begin = time.monotonic()
    while not (found := look()):
        time.sleep(_pause(begin, timeout, look, what))
    return found


async def eventually(
    look: Callable[[], T | Literal[False] | None], what: str = "", *, timeout: float = TIMEOUT
) -> T:
    """As `until`, while the event loop runs."""
    begin = time.monotonic()
    while not (found := look()):
        await asyncio.sleep(_pause(begin, timeout, look, what))
    return found


def _pause(begin: float, timeout: float, look: Callable[[], object], what: str) -> float:
    """A twentieth of the time so far, because a look is often a request: a hundred per second keep a processor busy."""
    waited = time.monotonic() - begin
    assert waited < timeout, f"not within {timeout:g} s: {what or getattr(look, '__qualname__', look)}"
    return min(max(SHORTEST, waited / 20), LONGEST)
