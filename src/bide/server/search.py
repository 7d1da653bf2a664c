"""Reads the filter of a list: the query `q` and the parameters beside it, into what the store finds.

Only paths into the input that a kind declares can be searched, because only they are indexed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bide.core.errors import InvalidInput
from bide.core.jobs.record import Status
from bide.core.wire.http import job_id
from bide.core.wire.query import QueryTerm, parse
from bide.server.registry import Registry
from bide.server.store import Filter, Term

_NOTHING = bytes(16)


class FilterFields(msgspec.Struct, frozen=True):
    """The fields of a filter, beside the order and the page."""

    q: str | None = None
    status: tuple[Status, ...] = ()
    kind: str | None = None
    queue: str | None = None
    label: tuple[str, str] | None = None
    code: str | None = None
    created_after: float | None = None
    created_before: float | None = None


def read_filter(fields: FilterFields, registry: Registry, tenant: str) -> Filter | None:
    """The filter of the jobs that match all fields; None if they contradict each other, so that no job can match.
    Raises InvalidInput.
    """
    terms = parse(fields.q) if fields.q is not None else ()
    kinds = _values(terms, "kind", fields.kind)
    queues = _values(terms, "queue", fields.queue)
    codes = _values(terms, "error", fields.code)
    statuses = [{Status(value)} for value in _values(terms, "status", None)]
    if fields.status:
        statuses.append(set(fields.status))
    status = set.intersection(*statuses) if statuses else set[Status]()
    for term in terms:
        if term.field.startswith("input."):
            _check_path(term, registry, next(iter(kinds), None))
    if len(kinds) > 1 or len(queues) > 1 or len(codes) > 1 or (statuses and not status):
        return None
    found = [
        Term(term.field, term.value)
        for term in terms
        if not term.field or term.field == "step" or term.field.startswith(("label.", "input."))
    ]
    if fields.label is not None:
        found.append(Term(f"label.{fields.label[0]}", fields.label[1]))
    return Filter(
        tenant=tenant,
        status=frozenset(status),
        kind=next(iter(kinds), None),
        queue=next(iter(queues), None),
        code=next(iter(codes), None),
        terms=tuple(dict.fromkeys(found)),
        first=_first_id(fields.created_after),
        end=_first_id(fields.created_before),
    )


def _values(terms: Iterable[QueryTerm], field: str, also: str | None) -> set[str]:
    found = {term.value for term in terms if term.field == field}
    return found if also is None else found | {also}


def _check_path(term: QueryTerm, registry: Registry, kind: str | None) -> None:
    declared = {path: one.name for one in registry.kinds.values() for path in one.search}
    known = registry.kinds.get(kind) if kind is not None else None
    if term.field in (known.search if known is not None else declared):
        return
    of = f"kind {kind} does not declare it" if known is not None else "no kind declares it"
    paths = sorted(known.search if known is not None else declared)
    raise InvalidInput.at(
        "?q",
        f"the term {str(term)[:100]!r}: the input cannot be searched by {term.field[:100]}, because {of}. "
        f'Declare it with @app.job(search=["{term.field[:100]}"]); declared: {", ".join(paths)[:200] or "none"}',
    )


def _first_id(at: float | None) -> str | None:
    """The smallest id of a job that was created at that time, because ids begin with the time."""
    if at is None:
        return None
    return job_id(min(max(at, 0.0), 253402300799.0), _NOTHING)
