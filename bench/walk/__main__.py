"""`python -m bench.walk`: the calls between functions of bide on the path of one job, each pair of functions counted once.

A resumed coroutine is not a call. The first walk is `bide wait` of one job at an imitation of sync.so, with a limit and a
ledger; the second is `submit` and `result(progress=True)` of a second job at a bide service.
"""

from __future__ import annotations

import asyncio
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

PACKAGES = ("bide.client", "bide.cli")
RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
Pair = tuple[str, str]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bide-walk-") as folder:
        for title, pairs in (
            ("bide wait ID --api sync.so --limit 60/1m --ledger FILE", _wait(Path(folder))),
            ("client.submit() and job.result(progress=True)", asyncio.run(_submit(Path(folder)))),
        ):
            functions = {name for pair in pairs for name in pair if name}
            modules = {name.rpartition(":")[0] for name in functions}
            print(f"{title}: {len(pairs)} calls, {len(functions)} functions, {len(modules)} modules")
    return 0


def _wait(folder: Path) -> set[Pair]:
    from bide.cli import root

    with Vendor(takes=lambda rng: 0.2) as vendor:
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
    started: set[int] = set()  # coroutines and generators, by their frame

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not _ours(frame) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # modules and classes that are being imported are not optimized
        if frame.f_code.co_flags & RESUMED:
            if id(frame) in started:
                return
            started.add(id(frame))
        caller = frame.f_back
        pairs.add((_name(caller) if caller is not None and _ours(caller) else "", _name(frame)))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield pairs
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(PACKAGES)


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}"


sys.exit(main())
