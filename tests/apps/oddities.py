"""Unusual exceptions and results of handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from bide import JobError, Partial
from bide.server.worker.context import HandlerParked


class NoText(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class NoPickle(Exception):
    def __init__(self, one: int, two: threading.Lock) -> None:
        super().__init__("held")

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


class Hollow(JobError):
    def __init__(self) -> None:
        """Does not call the constructor of JobError, so it has no code and no message."""


class Own(BaseException):
    pass


def chain() -> BaseException:
    error: Exception = ValueError("end")
    for _ in range(5000):
        error = ExceptionGroup("nested", [error])
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "no text": NoText,
    "no pickle": lambda: NoPickle(1, threading.Lock()),
    "hollow": Hollow,
    "own": lambda: Own("mine"),
    "group": lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    "deep group": chain,
    "stop iteration": lambda: StopIteration(5),
    "generator exit": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "interrupt": KeyboardInterrupt,
    "exit": lambda: SystemExit("bye"),
    "giant": lambda: ValueError("x" * 50_000_000),
    "surrogate": lambda: ValueError("half \ud800 and \0"),
    "long name": lambda: type("N" * 10_000, (Exception,), {})("x"),
    "numbers": lambda: JobError(404, 5, retryable="no", step=3),  # type: ignore[arg-type]
    "memory": MemoryError,
    "cannot be sent": lambda: HandlerParked([2**70]),  # type: ignore[list-item]
}


class Trap:
    """Raises KeyboardInterrupt on every attribute access."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def around() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def broken() -> Any:
    yield 1
    raise KeyError("later")


RESULTS: dict[str, Callable[[], Any]] = {
    "object": object,
    "nan": lambda: {"mean": float("nan")},
    "infinity": lambda: [float("-inf")],
    "huge": lambda: 10**5000,
    "bytes": lambda: b"\xff\xfe",
    "surrogate": lambda: "\ud800",
    "deep": lambda: nested(100_000),
    "around": around,
    "broken": broken,
    "trap": Trap,
    "errors": lambda: Partial(1, errors=[{"what": object()}]),
    "large errors": lambda: Partial(1, errors=[{"n": 2**70}]),
    "set": lambda: {7},
    "generator": lambda: (n for n in range(3)),
    "large": lambda: 10**30,
    "words": lambda: "NaN, Infinity",
    "digits": lambda: "7" * 5000,
}
