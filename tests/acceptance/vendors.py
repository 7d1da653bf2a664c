"""A vendor in sync.so's shapes whose jobs are there from the start, and `bide wait` as a process that asks it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from bide.lab.scenario import parse_scenario
from bide.lab.simulated_api import SimulatedApi
from bide.lab.vendor import Vendor
from tests.servers import warm

KEY = "sk-d6f1a1c2b3"
PATIENCE = 30.0


class Shop(Vendor):
    """Remembers when it was asked about what."""

    def __init__(self, count: int, duration: str, limit: str = "") -> None:
        text = f"{limit}\n[[jobs]]\ncount = {count}\nprogress = 'exact'\nduration = {duration}"
        super().__init__(world=SimulatedApi(parse_scenario(text, "shop"), 0), key=KEY)
        self.asked: list[tuple[float, str]] = []

    async def _status(self, request: web.Request) -> web.Response:
        self.asked.append((time.monotonic(), request.match_info["id"]))
        return await super()._status(request)


def start(folder: Path, *args: str, **options: Any) -> subprocess.Popen[str]:
    """`bide wait`, with the key in the variable that sync.so's description names."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    return warm.popen(
        [sys.executable, "-c", "from bide.cli import main; main()", "wait", *args],
        cwd=folder,
        env={**env, "SYNC_API_KEY": KEY},
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )
