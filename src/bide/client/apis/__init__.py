"""Job APIs, bide's own and third parties': descriptions (*.toml) and their reader. This package does no network I/O.

`load("sync.so")` returns an Api. It makes a Call; `bide.client.http` sends it; the Api reads the Answer into a Seen.
"""

from bide.client.apis.answers import (
    GONE,
    NOT_FOUND,
    TERMINAL,
    Answer,
    BadPoll,
    Call,
    Crowded,
    Denied,
    Found,
    NotYet,
    Ref,
    Seen,
    State,
    Throttled,
    UnreadableBatch,
)
from bide.client.apis.api import Api
from bide.client.apis.auth import Credential
from bide.client.apis.loader import BadDescription, load, names, text_of

__all__ = [
    "Answer",
    "Api",
    "BadDescription",
    "BadPoll",
    "Call",
    "Credential",
    "Crowded",
    "Denied",
    "Found",
    "GONE",
    "NOT_FOUND",
    "NotYet",
    "Ref",
    "Seen",
    "State",
    "TERMINAL",
    "Throttled",
    "UnreadableBatch",
    "load",
    "names",
    "text_of",
]
