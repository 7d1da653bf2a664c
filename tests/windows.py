"""Checks that granted requests obey a limit in every interval of time."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from bide.core.pacing.budget import Limit


def assert_within(granted: Sequence[float], limit: Limit) -> None:
    """With a burst in any stretch, without one in any of the limit's length."""
    spans = (limit.per,) if limit.burst is None else (limit.per / 20, limit.per / 4, limit.per)
    for span in spans:
        allowed = (
            limit.requests if limit.burst is None else limit.burst + limit.requests / limit.per * span
        )
        for i, start in enumerate(granted):
            inside = bisect.bisect_left(granted, start + span) - i
            assert inside <= allowed + 1e-6, f"{inside} in {span} s from {start}"
