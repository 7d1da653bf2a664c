"""What one process has learned of a kind, told to the others so that all of them know it.

A sketch is a sum over observations that fade as newer ones come. So what came since the last time is a difference, and
others add it to theirs: after a while all know what one process would have learned alone.
"""

from __future__ import annotations

from typing import Any

from bide.client.kinds import Kind
from bide.core.hazard import MEMORY, Sketch

SLIGHT = 1e-9


class Notebook:
    """Of one kind: remembers what is common knowledge."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._common = Kind.load(kind.dump())

    def news(self) -> dict[str, Any] | None:
        """What this process has learned since the last time."""
        now = self.kind.dump()
        durations = _since(self._common.plans.sketch, now["durations"])
        reports = {}
        for source, dump in now["reports"].items():
            found = _since(self._common.report(source).sketch, dump)
            if found is not None:
                reports[source] = found
        self._common = Kind.load(now)
        if durations is None and not reports:
            return None
        return {"durations": durations, "reports": reports}

    def hear(self, news: dict[str, Any]) -> None:
        """What another has learned."""
        for kind in (self.kind, self._common):
            if news["durations"] is not None:
                kind.plans.sketch.absorb(news["durations"])
            for source, found in news["reports"].items():
                kind.report(source).sketch.absorb(found)


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
    return {**now, "count": more, "bins": bins} if bins or more else None


_NONE = (0.0, 0.0, 0.0)
