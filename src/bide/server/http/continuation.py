"""Continues a coroutine that ran without a task until its first wait."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


async def finish(work: Coroutine[Any, Any, None], waiting: Any) -> None:
    """Run the rest of a coroutine that has started and waits for `waiting`."""
    await _Continuation(work, waiting)


class _Continuation:
    def __init__(self, work: Coroutine[Any, Any, None], waiting: Any) -> None:
        self._work = work
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, None]:
        work, waiting = self._work, self._waiting
        try:
            while True:
                try:
                    value = yield waiting
                except BaseException as error:
                    waiting = work.throw(error)
                else:
                    waiting = work.send(value)
        except StopIteration:
            return
