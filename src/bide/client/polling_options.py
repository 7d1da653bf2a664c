"""The options that say when a client polls, each declared once: its name, type, default, range and help text.

The keyword arguments of a client, the flags of `bide wait`, the table [polling] of a pipeline and the settings in a
ledger are made from this declaration.
"""

from __future__ import annotations

import math
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    get_args,
    get_type_hints,
)

import msgspec

from bide.client.job_state import Expected
from bide.core.pacing.intervals import PRICE

Size = Literal["small", "medium", "large"]
LONGEST_INTERVAL = 3600.0  # seconds
JITTER = 0.1  # of an interval, about


class PollingOption(NamedTuple):
    """The declaration of one option. `default` is None if the client decides."""

    help: str
    default: float | None = None
    low: float = 0
    high: float = math.inf
    above: bool = True  # the value must be above `low`, not equal to it
    flag: str = ""  # of the command line, if it is not the name

    def range_error(self, value: float) -> str | None:
        """Say which values are permitted, if this one is not; otherwise return None."""
        if (
            self.low <= value <= self.high
            and value != math.inf
            and not (self.above and value == self.low)
        ):
            return None
        if self.high != math.inf:
            return f"from {self.low:g} to {self.high:g}"
        return f"a number above {self.low:g}" if self.above else f"{self.low:g} or more"


class PollingOptions(TypedDict, total=False):
    """When a client polls. A pipeline has the same options. Every option has a default that needs no tuning."""

    price: Annotated[
        float | None,
        PollingOption(
            "Seconds of delay that one request is worth. A higher price means fewer requests and a longer delay.",
            default=PRICE,
        ),
    ]
    expected: Annotated[
        Expected | None,
        PollingOption(
            "Seconds that a job usually takes, if you know: 120, or 15-60. Few requests are sent before that time.",
            flag="--expect",
        ),
    ]
    size: Annotated[
        Size | None,
        PollingOption(
            "How large the jobs are, if you do not know how long they take. Also sets a timeout."
        ),
    ]
    first_interval: Annotated[
        float | None,
        PollingOption(
            "Seconds from the start of the wait to the first poll of a job.  [default: 0 for a job that another "
            "command submitted]"
        ),
    ]
    longest_interval: Annotated[
        float | None,
        PollingOption(
            "The most seconds between two polls of a job, if the limit of the API allows it.",
            default=LONGEST_INTERVAL,
        ),
    ]
    jitter: Annotated[
        float | None,
        PollingOption(
            "The part by which an interval is randomly longer or shorter.",
            default=JITTER,
            high=1,
            above=False,
        ),
    ]
    backoff: Annotated[
        float | None,
        PollingOption(
            "Poll at intervals that grow by this factor, instead of those planned from learned durations; 1 is a fixed "
            "interval.",
            low=1,
            above=False,
        ),
    ]


def _declared() -> dict[str, tuple[Any, PollingOption]]:
    hints = get_type_hints(PollingOptions, include_extras=True)
    return {name: get_args(hint) for name, hint in hints.items()}


# The type and the declaration by name.
POLLING_OPTIONS = _declared()

if TYPE_CHECKING:

    class PollingFields(msgspec.Struct, frozen=True, kw_only=True):
        """The options as fields that are None if they are not set."""
else:
    PollingFields = msgspec.defstruct(
        "PollingFields",
        [(name, type, None) for name, (type, _) in POLLING_OPTIONS.items()],
        frozen=True,
        kw_only=True,
        module=__name__,
    )
