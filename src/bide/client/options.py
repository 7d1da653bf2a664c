"""The options of a client and of a wait. Each is declared here once; the command line passes them on by these names."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from bide.client.ledger import Ledger
from bide.client.polling.schedule import PollSettings
from bide.client.polling_options import POLLING_OPTIONS, PollingOptions
from bide.core.pacing.budget import Limit
from bide.core.pacing.intervals import PRICE
from bide.core.wire.http import JobStatus

OnChange = Callable[[JobStatus], object]
Timeout = float | Literal["default"] | None  # seconds; None: no timeout
LONGEST_WAIT = 7 * 86400.0  # the default timeout of a wait


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
    # A tracer of OpenTelemetry, which makes a span of each submission, poll and other request.
    tracer: Any


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
    """Return the settings of a schedule. ValueError for an option that cannot be used."""
    expected = options.get("expected")
    if expected is not None:
        low, high = expected if isinstance(expected, list | tuple) else (expected, expected)
        if not 0 < low <= high < math.inf:
            raise ValueError(
                f"`expected` must be a number of seconds above 0, or the least and the greatest number, not {expected}"
            )
    for name, (_, option) in POLLING_OPTIONS.items():
        value: Any = options.get(name)
        permitted = option.range_error(value) if isinstance(value, int | float) else None
        if permitted is not None:
            raise ValueError(f"`{name}` must be {permitted}, not {value}")
    return PollSettings(
        options.get("price") or PRICE,
        options.get("first_interval"),
        options.get("longest_interval"),
        options.get("jitter"),
        options.get("backoff"),
    )
