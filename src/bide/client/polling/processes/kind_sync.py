"""Sends the observations of one process about a kind to the others.

A sketch is a sum over observations that fade with newer ones. So the observations since the last message are a
difference, and the other processes add it to their sketches. After a while each process has the sketch of all
observations.
"""

from __future__ import annotations

from typing import Any

from bide.client.polling.kinds import KindStats
from bide.core.pacing.hazard import MEMORY, Sketch

SLIGHT = 1e-9


class KindSync:
    """Stores the state of one kind that all processes have in common."""

    def __init__(self, kind: KindStats) -> None:
        self.kind = kind
        self._common = KindStats.load(kind.dump())

    def news(self) -> dict[str, Any] | None:
        """Return the observations of this process since the last call."""
        now = self.kind.dump()
        durations = _since(self._common.plans.sketch, now["durations"])
        reports = {}
        for source, dump in now["reports"].items():
            found = _since(self._common.report(source).sketch, dump)
            if found is not None:
                reports[source] = found
        self._common = KindStats.load(now)
        if durations is None and not reports:
            return None
        return {"durations": durations, "reports": reports}

    def absorb(self, news: dict[str, Any]) -> None:
        """Add the observations of another process."""
        if news["durations"] is not None:
            _absorb(self.kind.plans.sketch, self._common.plans.sketch, news["durations"])
        for source, found in news["reports"].items():
            _absorb(self.kind.report(source).sketch, self._common.report(source).sketch, found)


def _absorb(own: Sketch, common: Sketch, found: dict[str, Any]) -> None:
    # The unsent observations of this process make `common` fade before the next difference is computed. `found` is not
    # older than these, so it must not fade with them: a part of it would be sent as news of this process.
    unsent = own.count - common.count
    own.absorb(found)
    common.absorb(found, (1.0 + 1.0 / MEMORY) ** unsent)


def _since(before: Sketch, now: dict[str, Any]) -> dict[str, Any] | None:
    was = before.dump()
    more = now["count"] - was["count"]
    faded = (1.0 + 1.0 / MEMORY) ** -more
    bins: dict[str, list[float]] = {}
    for key in now["bins"].keys() | was["bins"].keys():
        new, old = now["bins"].get(key, _NONE), was["bins"].get(key, _NONE)
        change = [a - b * faded for a, b in zip(new, old, strict=True)]
        if any(abs(x) > SLIGHT for x in change):
            bins[key] = change
    ends = {(i, j): weight for i, j, weight in now["cells"]}
    for i, j, weight in was["cells"]:
        ends[i, j] = ends.get((i, j), 0.0) - weight * faded
    cells = [[i, j, weight] for (i, j), weight in ends.items() if abs(weight) > SLIGHT]
    return {**now, "count": more, "bins": bins, "cells": cells} if bins or cells or more else None


_NONE = (0.0, 0.0, 0.0)
