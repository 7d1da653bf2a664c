"""The Place port: where machines keep a budget that they share. A record a name, changed by compare-and-set.

1. `swap` writes when the record's version is still the one that was known, and changes nothing otherwise. Either way it
   tells the server's time, which is the time of the budget.
2. A place may lose its records, as a Redis does that is restarted: then it has none, never an old one.
3. The salt is made by whoever is first, and outlives the records if that can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NOTHING = ""  # the version of a record that is not there


class Away(Exception):
    """The place does not answer. The text says why, and holds no password."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Whether it was written; and if not, what is there."""

    swapped: bool
    now: float
    version: str = NOTHING
    data: bytes = b""


class Place(Protocol):
    """Used by one thread. `shown` is its address, fit for a log."""

    shown: str

    def swap(self, name: str, known: str, version: str, data: bytes) -> Reply: ...

    def read(self, name: str) -> Reply: ...

    def salt(self, first: bytes) -> bytes:
        """The one that all use; `first` when there is none."""
        ...

    def close(self) -> None: ...
