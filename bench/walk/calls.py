"""Which functions of bide call which, on every thread of this process."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType

LOADING = "bide.client.apis.loader"
RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
CALLED = ("__init__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__")
Pair = tuple[str, str]


def followed(pairs: set[Pair]) -> list[Pair]:
    """The calls to functions that call another one."""
    callers = {caller for caller, _ in pairs}
    return sorted((caller, callee) for caller, callee in pairs if callee in callers)


@contextmanager
def traced(packages: tuple[str, ...], timers: Collection[str] = ()) -> Iterator[set[Pair]]:
    """Collect the calls between functions of `packages`, except those that `timers` make. Calls of threads that run
    already are not seen.
    """
    pairs: set[Pair] = set()
    started: set[FrameType] = set()  # of coroutines and generators

    def ours(frame: FrameType) -> bool:
        return _module(frame).startswith(packages)

    def caller_of(frame: FrameType) -> str:
        caller = frame.f_back
        while caller is not None and ours(caller) and _belongs_to_caller(caller):
            caller = caller.f_back
        return _name(caller) if caller is not None and ours(caller) else ""

    def on_timer(frame: FrameType | None) -> bool:
        while frame is not None:
            if ours(frame) and _name(frame) in timers:
                return True
            frame = frame.f_back
        return False

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not ours(frame) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # modules and classes that are being imported are not optimized
        if frame.f_code.co_flags & RESUMED:
            if frame in started:
                return
            started.add(frame)
        if not _belongs_to_caller(frame) and not _is_loading(frame.f_back) and not on_timer(frame):
            pairs.add((caller_of(frame), _name(frame)))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield pairs
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _belongs_to_caller(frame: FrameType) -> bool:
    name = frame.f_code.co_name
    special = name.startswith("__") and name.endswith("__") and name not in CALLED
    return special or name.startswith("<") or _is_property(_module(frame), frame.f_code.co_qualname)


@functools.cache
def _is_property(module: str, qualname: str) -> bool:
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return isinstance(found, property | functools.cached_property)


def _is_loading(frame: FrameType | None) -> bool:
    while frame is not None:
        if _module(frame) == LOADING:
            return True
        frame = frame.f_back
    return False


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _name(frame: FrameType) -> str:
    module = _module(frame)
    return f"{LOADING}:load" if module == LOADING else f"{module}:{frame.f_code.co_qualname}"
