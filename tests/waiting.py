"""Waiting in tests for what another process or thread does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")
TIMEOUT = 30.0
INTERVAL = 0.01


def until(
    look: Callable[[], T | Literal[False] | None], what: str = "", *, timeout: float = TIMEOUT
) -> T:
    """Calls `look` until it returns something true, and returns that. `what`: for the message of a failure."""
    end = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < end, _message(look, what, timeout)
        time.sleep(INTERVAL)
    return found


async def eventually(
    look: Callable[[], T | Literal[False] | None], what: str = "", *, timeout: float = TIMEOUT
) -> T:
    """As `until`, while the event loop runs."""
    end = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < end, _message(look, what, timeout)
        await asyncio.sleep(INTERVAL)
    return found


def _message(look: Callable[[], object], what: str, timeout: float) -> str:
    return f"not within {timeout:g} s: {what or getattr(look, '__qualname__', look)}"
