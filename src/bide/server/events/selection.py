"""Which events a listener gets, and the index that finds the listeners of an event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from bide.core.wire.events import ALL_TYPES
from bide.core.wire.http import Event
from bide.server.store import EventFilter

T = TypeVar("T")
_Key = tuple[str, ...]


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
    def keys(self) -> Iterable[_Key]:
        """The keys under which the index has this selection: those of its most selective field."""
        if self.jobs:
            return [("job", job_id) for job_id in self.jobs]
        if self.labels:
            return [("label", *min(self.labels))]
        if self.kinds:
            return [("kind", kind) for kind in self.kinds]
        if self.queues:
            return [("queue", queue) for queue in self.queues]
        return [("tenant", self.tenant)]


class SelectionIndex(Generic[T]):
    """Items by their selections. Finding the items of an event does not depend on the number of other items."""

    def __init__(self) -> None:
        self._items: dict[_Key, dict[T, EventSelection]] = {}
        self._families: Counter[str] = Counter()  # the number of keys by their first part

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, selection: EventSelection, item: T) -> None:
        for key in selection.keys:
            items = self._items.get(key)
            if items is None:
                items = self._items[key] = {}
                self._families[key[0]] += 1
            items[item] = selection

    def remove(self, selection: EventSelection, item: T) -> None:
        for key in selection.keys:
            items = self._items.get(key)
            if items is not None:
                items.pop(item, None)
                if not items:
                    del self._items[key]
                    self._families[key[0]] -= 1

    def has_job(self, job_id: str) -> bool:
        return ("job", job_id) in self._items

    def find(self, event: Event) -> list[T]:
        """The items whose selection matches the event, regardless of its type. Each is found once."""
        facts, families, found = event.job, self._families, []
        keys: list[_Key] = []
        if families["job"]:
            keys.append(("job", event.job_id))
        if families["tenant"]:
            keys.append(("tenant", event.tenant))
        for name in ("kind", "queue"):
            if families[name] and name in facts:
                keys.append((name, facts[name]))
        if families["label"]:
            keys += [("label", *label) for label in facts.get("labels", {}).items()]
        for key in keys:
            items = self._items.get(key)
            if items:
                found += [item for item, selection in items.items() if selection.matches(event)]
        return found
