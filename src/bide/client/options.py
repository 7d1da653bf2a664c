"""The options of a client and of a wait. Each is declared here once; the command line passes them on by these names."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from bide.client.job_state import Expected
from bide.client.ledger import Ledger
from bide.client.polling.kinds import Size
from bide.client.polling.schedule import PollSettings
from bide.core.pacing.budget import Limit
from bide.core.pacing.intervals import PRICE
from bide.core.wire.http import JobStatus

OnChange = Callable[[JobStatus], object]
Timeout = float | Literal["default"] | None  # seconds; None: no timeout
LONGEST_WAIT = 7 * 86400.0  # the default timeout of a wait


class PollingOptions(TypedDict, total=False):
    """When a client polls. A pipeline has the same options. Every option has a default that needs no tuning."""

    # Seconds of waiting that one request is worth. Default: 1.
    price: float | None
    # Seconds that a job takes, as far as the caller knows: 120, or from 15 to 60 as (15, 60).
    expected: Expected | None
    # "small", "medium" or "large": how long jobs take, and how long to wait for them.
    size: Size | None
    # Seconds from the submission, or from the start of the wait, to the first poll of a job. Default: as planned.
    first_interval: float | None
    # The most seconds between two polls of a job. Default: an hour.
    longest_interval: float | None
    # The part by which an interval is randomly longer or shorter. Default: about 0.1.
    jitter: float | None
    # The intervals grow by this factor, instead of a plan from learned durations. 1: they stay the same.
    backoff: float | None


class ClientOptions(PollingOptions, total=False):
    """How a client waits. Every option has a default that needs no tuning."""

    # Requests that the API permits: "60/1m", or "60/1m:10" with a burst. Default: the limit of the description.
    limit: str | Limit | None
    # Seconds until WaitTimeout, for waits that have no timeout of their own. Default: that of the size, or seven days.
    timeout: Timeout
    # Added to every request to the API.
    headers: Mapping[str, str] | None
    # Stores the jobs that the client waits for, so that another process can resume.
    ledger: str | os.PathLike[str] | Ledger | None
    # redis://… or postgresql://…: a budget that machines with the same credential share.
    budget: str | None
    # Processes that share the polling and one budget. Default: 1.
    processes: int | None


class WaitOptions(TypedDict, total=False):
    """The timeout, the progress display and the callback of a wait."""

    # Seconds until WaitTimeout; None: never. Default: that of the client.
    timeout: Timeout
    # True: bars in a terminal; or a tqdm bar.
    progress: Any
    # Called with the job's status when that or its progress changes.
    on_change: OnChange | None
    # Cancels the remaining jobs at the timeout; otherwise they continue.
    cancel_on_timeout: bool


def check_polling(options: PollingOptions) -> PollSettings:
    """The settings of a schedule. ValueError for an option that cannot be used."""
    expected = options.get("expected")
    if expected is not None:
        low, high = expected if isinstance(expected, list | tuple) else (expected, expected)
        if not 0 < low <= high < math.inf:
            raise ValueError(
                f"`expected` must be a number of seconds above 0, or a shorter and a longer one, not {expected}"
            )
    for name in ("price", "first_interval", "longest_interval"):
        value: Any = options.get(name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"`{name}` must be a number above 0, not {value}")
    jitter, factor = options.get("jitter"), options.get("backoff")
    if jitter is not None and not 0 <= jitter <= 1:
        raise ValueError(f"`jitter` must be from 0 to 1, not {jitter}")
    if factor is not None and not 1 <= factor < math.inf:
        raise ValueError(f"`backoff` must be 1 or more, not {factor}")
    first, longest = options.get("first_interval"), options.get("longest_interval")
    return PollSettings(options.get("price") or PRICE, first, longest, jitter, factor)
