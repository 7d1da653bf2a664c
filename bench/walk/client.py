"""The walks of the client."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.service import servers
from bench.walk.calls import Pair, traced
from bide import AsyncClient
from bide.lab.vendor import Vendor

PACKAGES = ("bide.client", "bide.cli", "bide.core")


def wait(folder: Path) -> set[Pair]:
    """`bide wait` of one job at an imitation of sync.so, with a limit and a ledger."""
    from bide.cli import root

    # Long enough to be polled while it runs and after its end.
    with Vendor(takes=lambda rng: 2.0) as vendor:
        (job_id,) = asyncio.run(_submitted(vendor.url))
        arguments = [job_id, "--api", "sync.so", "--url", vendor.url, "--key", "k", "--limit", "60/1m"]
        with traced(PACKAGES) as pairs:
            root.main(["wait", *arguments, "--ledger", str(folder / "ledger")], standalone_mode=False)
    return pairs


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
