"""A machine that has just booted: the monotonic clock is near zero, and no moment may be taken for one long ago.

The clock may begin below zero, too: then every `0.0` that stands for "never" lies an hour ahead, and something waits for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.serving import Serving


@pytest.fixture(params=[-3600.0, pytest.param(0.0, marks=pytest.mark.soak)], ids=["below", "zero"])
def young(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Serving, dict[str, str]]]:
    service = Serving(tmp_path)
    env = service.boot_at(request.param)
    service.start()
    yield service, env
    service.stop()


def test_jobs_run_and_are_waited_for(young: tuple[Serving, dict[str, str]], tmp_path: Path) -> None:
    service, env = young

    def bide(*args: str) -> str:
        command = [sys.executable, "-m", "bide", *args, "--url", service.url]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    family, crashed, failed = (
        service.post("family", number=1),
        service.post("crash"),
        service.post("fail"),
    )
    assert json.loads(bide("submit", "work", "-i", '{"number": 7}', "--wait", "--json"))["result"] == 7
    options = ["--limit", "600/1m", "--ledger", str(tmp_path / "ledger"), "--processes", "2"]
    bide("wait", service.post("work", number=8), service.post("paint", size=9), *options)
    assert service.ended(family)["result"] == 3
    assert service.ended(failed)["error"]["code"] == "BROKEN"
    assert service.ended(crashed)["error"]["code"] == "POISONED"
