"""The app of the trials, mounted, with an upkeep that treats every unknown file as an orphan after one second."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bench.chaos.app import app
from bide.server.config import BlobsConfig, Config, UpkeepConfig

DATA, BLOBS = "CHAOS_DATA", "CHAOS_BLOBS"


def application() -> Any:
    return app.asgi(
        config=Config(
            data=Path(os.environ[DATA]),
            blobs=BlobsConfig(os.environ[BLOBS]),
            upkeep=UpkeepConfig(interval=0.5, orphan_age=1.0, sweep=1.0, quarantine=1.0),
        )
    )
