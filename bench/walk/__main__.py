"""`python -m bench.walk`: the calls on the path of one job that a reader of the code follows, and their modules.

The first walk is `bide wait` of one job at an imitation of sync.so, with a limit and a ledger; the second is `submit` and
`result(progress=True)` of a second job at a bide service. A call is a pair of functions of `bide.client`, `bide.cli` or
`bide.core`, counted once, by this rule:

1. A call to a function that calls no other function is not counted: its name says enough. Most constructors of data,
   conversions and clocks are such functions.
2. A comprehension, a lambda, a property and a special method such as `__repr__` belong to the function that uses them.
3. All work of `bide.client.apis.loading`, which prepares the description of an API, is one function, `load`.
4. A resumed coroutine is not a call, and neither is code that runs at import. A function that asyncio, click or a thread
   calls has the caller "".

`--list` prints the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import inspect
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from bench.service import servers
from bide import AsyncClient
from bide.lab.vendor import Vendor

PACKAGES = ("bide.client", "bide.cli", "bide.core")
LOADING = "bide.client.apis.loading"
RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
CALLED = ("__init__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__")
Pair = tuple[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.walk")
    parser.add_argument("--list", action="store_true", help="print the calls")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bide-walk-") as folder:
        for title, pairs in (
            ("bide wait ID --api sync.so --limit 60/1m --ledger FILE", _wait(Path(folder))),
            ("client.submit() and job.result(progress=True)", asyncio.run(_submit(Path(folder)))),
        ):
            callers = {caller for caller, _ in pairs}
            followed = sorted((caller, callee) for caller, callee in pairs if callee in callers)
            modules = {callee.partition(":")[0] for _, callee in followed}
            print(f"{title}: {len(followed)} calls in {len(modules)} modules")
            if arguments.list:
                print("".join(f"  {caller or '-'} → {callee}\n" for caller, callee in followed))
    return 0


def _wait(folder: Path) -> set[Pair]:
    from bide.cli import root

    # Long enough to be polled while it runs and after its end.
    with Vendor(takes=lambda rng: 2.0) as vendor:
        (job_id,) = asyncio.run(_submitted(vendor.url))
        arguments = [job_id, "--api", "sync.so", "--url", vendor.url, "--key", "k", "--limit", "60/1m"]
        with _traced() as pairs:
            root.main(["wait", *arguments, "--ledger", str(folder / "ledger")], standalone_mode=False)
    return pairs


async def _submitted(url: str) -> list[str]:
    async with AsyncClient(url, "k", api="sync.so") as client:
        return [(await client.submit("lipsync", {})).id]


async def _submit(folder: Path) -> set[Pair]:
    with servers.bide(folder / "service") as site:
        async with AsyncClient(f"http://127.0.0.1:{site.port}") as client:
            await (await client.submit("noop", {"n": 1})).result(progress=True)
            with _traced() as pairs:
                await (await client.submit("noop", {"n": 2})).result(progress=True)
    return pairs


@contextmanager
def _traced() -> Iterator[set[Pair]]:
    pairs: set[Pair] = set()
    started: set[FrameType] = set()  # of coroutines and generators

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not _ours(frame) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # modules and classes that are being imported are not optimized
        if frame.f_code.co_flags & RESUMED:
            if frame in started:
                return
            started.add(frame)
        if not _belongs_to_caller(frame) and not _is_loading(frame.f_back):
            pairs.add((_caller(frame), _name(frame)))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield pairs
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _caller(frame: FrameType) -> str:
    caller = frame.f_back
    while caller is not None and _ours(caller) and _belongs_to_caller(caller):
        caller = caller.f_back
    return _name(caller) if caller is not None and _ours(caller) else ""


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


def _ours(frame: FrameType) -> bool:
    return _module(frame).startswith(PACKAGES)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _name(frame: FrameType) -> str:
    module = _module(frame)
    return f"{LOADING}:load" if module == LOADING else f"{module}:{frame.f_code.co_qualname}"


sys.exit(main())
