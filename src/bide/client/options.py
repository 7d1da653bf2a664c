"""What a client and a wait can be told, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict

from bide.client.ledger import Ledger
from bide.client.polling.kinds import Size
from bide.client.waiting import OnChange
from bide.core.budget import Limit


class ClientOptions(TypedDict, total=False):
    """How a client waits; all of them have defaults that need no tuning."""

    limit: str | Limit | None  # requests that the API allows, "60/1m" or "60/1m:10" with a burst
    price: float | None  # seconds of waiting that one request is worth; 1 by default
    expected: float | None  # seconds that a job will take, as far as the caller knows
    size: Size | None  # "small", "medium" or "large": how long jobs take, and how long to wait for them
    headers: Mapping[str, str] | None  # added to every request to the API
    ledger: str | os.PathLike[str] | Ledger | None  # where what is waited for survives a crash
    budget: (
        str | None
    )  # redis://… or postgresql://…, where machines with the same credential share its budget
    processes: int | None  # that the polling is spread over, on one shared budget; 1 by default


class WaitOptions(TypedDict, total=False):
    """How a wait is limited and shown."""

    timeout: float | None  # seconds; then WaitTimeout
    progress: Any  # True: bars in a terminal; or a tqdm bar
    on_change: (
        OnChange | None
    )  # called with the job as it is, whenever its status or progress has changed
    cancel_on_timeout: bool  # the jobs that are left are cancelled; otherwise they go on
