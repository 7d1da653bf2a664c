"""Which events a listener gets, and the index that finds the listeners of an event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from bide.core.wire.events import ALL_TYPES
from bide.core.wire.http import Event
from bide.server.store import EventFilter

T = TypeVar("T")
_Field = Literal["jobs", "labels", "kinds", "queues", "all"]


class EventSelection(msgspec.Struct, frozen=True):
    """Events of a tenant that have one of the values of each field, and all `labels`. An empty field allows all values."""

    tenant: str = "-"
    jobs: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    labels: frozenset[tuple[str, str]] = frozenset()
    types: frozenset[str] = ALL_TYPES

    def matches(self, event: Event) -> bool:
        """Whether it selects an event, regardless of the event's type."""
        if event.tenant != self.tenant or (self.jobs and event.job_id not in self.jobs):
            return False
        facts = event.job
        if self.kinds and facts.get("kind") not in self.kinds:
            return False
        if self.queues and facts.get("queue") not in self.queues:
            return False
        return not self.labels or self.labels <= facts.get("labels", {}).items()

    def in_log(self, after: int, until: int | None, limit: int) -> EventFilter:
        """The part of the selection that the log can apply."""
        return EventFilter(self.tenant, after, until, tuple(sorted(self.jobs)), limit=limit)

    @property
    def place(self) -> tuple[_Field, Iterable[Any]]:
        """Where the index has this selection: its most selective field, and the values of it."""
        if self.jobs:
            return "jobs", self.jobs
        if self.labels:
            return "labels", (min(self.labels),)
        if self.kinds:
            return "kinds", self.kinds
        if self.queues:
            return "queues", self.queues
        return "all", (None,)

    @property
    def needs_check(self) -> bool:
        """Whether an event of this tenant that has a value of `place` may not match."""
        others = bool(self.labels) + bool(self.kinds) + bool(self.queues)
        return bool(self.jobs) or others > 1 or len(self.labels) > 1


_Items = dict[T, EventSelection | None]


class _TenantIndex(Generic[T]):
    """The items of one tenant, by field and value. An item with a selection must be checked, the others always match."""

    __slots__ = ("all", "jobs", "kinds", "labels", "queues")

    def __init__(self) -> None:
        self.all: dict[None, _Items[T]] = {}
        self.jobs: dict[str, _Items[T]] = {}
        self.kinds: dict[str, _Items[T]] = {}
        self.labels: dict[tuple[str, str], _Items[T]] = {}
        self.queues: dict[str, _Items[T]] = {}


class SelectionIndex(Generic[T]):
    """Items by their selections. Finding the items of an event does not depend on the number of other items."""

    def __init__(self) -> None:
        self._tenants: dict[str, _TenantIndex[T]] = {}
        self._jobs: Counter[str] = Counter()  # that selections name
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._size)

    def add(self, selection: EventSelection, item: T) -> None:
        tenant = self._tenants.setdefault(selection.tenant, _TenantIndex())
        check = selection if selection.needs_check else None
        field, values = selection.place
        table: dict[Any, _Items[T]] = getattr(tenant, field)
        for value in values:
            table.setdefault(value, {})[item] = check
        self._jobs.update(selection.jobs)
        self._size += 1

    def remove(self, selection: EventSelection, item: T) -> None:
        """Remove an item that was added with this selection."""
        field, values = selection.place
        table: dict[Any, _Items[T]] = getattr(self._tenants[selection.tenant], field)
        for value in values:
            items = table[value]
            del items[item]
            if not items:
                del table[value]
        for job_id in selection.jobs:
            self._jobs[job_id] -= 1
            if not self._jobs[job_id]:
                del self._jobs[job_id]
        self._size -= 1

    def has_job(self, job_id: str) -> bool:
        return job_id in self._jobs

    def find(self, event: Event) -> list[T]:
        """The items whose selection matches the event, regardless of its type. Each is found once."""
        found: list[T] = []
        tenant = self._tenants.get(event.tenant)
        if tenant is None:
            return found
        facts = event.job
        if tenant.jobs:
            _collect(tenant.jobs.get(event.job_id), event, found)
        if tenant.labels and (labels := facts.get("labels")):
            table = tenant.labels
            for label in labels.items():
                _collect(table.get(label), event, found)
        if tenant.kinds:
            _collect(tenant.kinds.get(facts.get("kind", "")), event, found)
        if tenant.queues:
            _collect(tenant.queues.get(facts.get("queue", "")), event, found)
        if tenant.all:
            _collect(tenant.all.get(None), event, found)
        return found


def _collect(items: _Items[T] | None, event: Event, found: list[T]) -> None:
    if items is not None:
        for item, check in items.items():
            if check is None or check.matches(event):
                found.append(item)
