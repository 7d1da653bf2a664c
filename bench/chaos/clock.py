"""A simulated machine's clock: its Python programs add an offset that they read from a file.

The monotonic clock stays right, as on a real machine whose time is set. With `asleep`, the clock that
counts the time asleep is stepped as well, as when the machine was suspended. (libfaketime makes time.sleep fail when it
does that.)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

STEPPED = """
import os, time
_time, _time_ns, _gettime = time.time, time.time_ns, time.clock_gettime

def _step():
    with open(os.environ["CLOCK_STEP"]) as file:
        return int(file.read())

def _clock_gettime(clock):
    return _gettime(clock) + (_step() if clock in _stepped else 0)

_stepped = {time.CLOCK_REALTIME}
if os.environ.get("CLOCK_ASLEEP"):
    _stepped.add(time.CLOCK_BOOTTIME)
time.time = lambda: _time() + _step()
time.time_ns = lambda: _time_ns() + _step() * 1_000_000_000
time.clock_gettime = _clock_gettime
"""


class SteppedClock:
    def __init__(self, folder: Path, *, asleep: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._asleep = asleep
        self._file = folder / "clock"
        (folder / "sitecustomize.py").write_text(STEPPED)
        self.step(0)

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment that gives a program this clock."""
        path = [str(self._folder), *filter(None, [env.get("PYTHONPATH")])]
        extra = {"PYTHONPATH": os.pathsep.join(path), "CLOCK_STEP": str(self._file)}
        return {**env, **extra, **({"CLOCK_ASLEEP": "1"} if self._asleep else {})}

    def step(self, seconds: int) -> None:
        """Set the difference from the true time."""
        scratch = self._file.with_suffix(".new")
        scratch.write_text(str(seconds))
        scratch.replace(self._file)
