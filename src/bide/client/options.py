"""The options of a client and of a wait. Each is declared here once; the command line passes them on by these names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from bide.client.ledger import Ledger
from bide.client.polling.kinds import Size
from bide.core.pacing.budget import Limit
from bide.core.wire.http import JobStatus

OnChange = Callable[[JobStatus], object]


class ClientOptions(TypedDict, total=False):
    """How a client waits. Every option has a default that needs no tuning."""

    # Requests that the API permits: "60/1m", or "60/1m:10" with a burst. Default: the limit of the description.
    limit: str | Limit | None
    # Seconds of waiting that one request is worth. Default: 1.
    price: float | None
    # Seconds that a job takes, as far as the caller knows.
    expected: float | None
    # "small", "medium" or "large": how long jobs take, and how long to wait for them.
    size: Size | None
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

    # Seconds until WaitTimeout.
    timeout: float | None
    # True: bars in a terminal; or a tqdm bar.
    progress: Any
    # Called with the job's status when that or its progress changes.
    on_change: OnChange | None
    # Cancels the remaining jobs at the timeout; otherwise they continue.
    cancel_on_timeout: bool
