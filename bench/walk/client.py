"""The walks of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from bench.service import servers
from bench.walk.calls import Pair, traced
from bide import AsyncClient
from bide.client.apis import loader
from bide.lab.vendor import Vendor

PACKAGES = ("bide.client", "bide.cli", "bide.core")


def wait(folder: Path) -> set[Pair]:
    """`bide wait` of one job at an imitation of sync.so, with a limit and a ledger."""
    from bide.cli import root

    # Long enough to be polled while it runs and after its end.
    with Vendor(takes=lambda rng: 2.0) as vendor:
        (job_id,) = asyncio.run(_submitted(vendor.url))
        arguments = [job_id, "--api", "sync.so", "--key", "k", "--limit", "60/1m"]
        with _sync_so_at(vendor.url), traced(PACKAGES) as pairs:
            root.main(["wait", *arguments, "--ledger", str(folder / "ledger")], standalone_mode=False)
    return pairs


@contextmanager
def _sync_so_at(url: str) -> Iterator[None]:
    """Change the address in the shipped description. With `--url` the command would also store that the user typed one."""
    text = loader.text_of("sync.so")
    moved = text.replace(loader.form_of(text, "sync.so").url or "", url)
    with patch.object(loader, "text_of", lambda name: moved):
        yield


async def _submitted(url: str) -> list[str]:
    async with AsyncClient(url, "k", api="sync.so") as client:
        return [(await client.submit("lipsync", {})).id]


def submit(folder: Path) -> set[Pair]:
    """`submit` and `result(progress=True)` of a second job at a bide service."""
    return asyncio.run(_submit(folder))


async def _submit(folder: Path) -> set[Pair]:
    with servers.bide(folder / "service") as site:
        async with AsyncClient(f"http://127.0.0.1:{site.port}") as client:
            await (await client.submit("noop", {"n": 1})).result(progress=True)
            with traced(PACKAGES) as pairs:
                await (await client.submit("noop", {"n": 2})).result(progress=True)
    return pairs
