"""The row of a job: one column per field, JSON for structured fields, NULL for empty ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from operator import is_not
from typing import Any

import msgspec
from msgspec.structs import astuple

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Child, FileInfo, Job, LossRecord, Progress, Status, Step
from bide.core.wire.http import Event

FIELDS: tuple[str, ...] = Job.__struct_fields__
COLUMNS = ", ".join(FIELDS)
_INDICES = range(len(FIELDS))
EVENT_COLUMNS = "id, job_id, type, at, job, tenant"
_encode = msgspec.json.Encoder().encode

# Fields whose column is JSON: their type, and the value of an empty column.
_PARTS: dict[str, tuple[Any, Any]] = {
    "labels": (dict[str, str], {}),
    "result_file": (FileInfo, None),
    "error": (ErrorInfo, None),
    "progress": (Progress, None),
    "loss_record": (LossRecord, None),
    "steps": (tuple[Step, ...], ()),
    "files": (tuple[FileInfo, ...], ()),
    "children": (tuple[Child, ...], ()),
    "waiting_for": (tuple[str, ...], None),
}


def _reader(name: str) -> Callable[[Any], Any] | None:
    """Read a column that is not NULL."""
    if name == "status":
        return Status
    if name == "result":
        return msgspec.Raw
    if name in _PARTS:
        return msgspec.json.Decoder(_PARTS[name][0]).decode
    return None


def _text_or_null(value: Any) -> str | None:
    return _encode(value).decode() if value else None


def _writer(name: str) -> Callable[[Any], Any] | None:
    if name == "result":
        return lambda raw: None if raw is None else bytes(raw).decode()
    if name == "waiting_for":
        return lambda value: None if value is None else _encode(value).decode()
    if name in _PARTS:
        return _text_or_null
    if name == "status":
        return {status: status.value for status in Status}.__getitem__
    return None


# The index of each such column, its reader, and the value of an empty column.
_READERS = [
    (i, reader, _PARTS.get(name, (None, None))[1])
    for i, name in enumerate(FIELDS)
    if (reader := _reader(name))
]
_WRITERS = {i: writer for i, name in enumerate(FIELDS) if (writer := _writer(name))}
# Of these, the columns that are NULL if the value is empty, and the others.
_OFTEN_EMPTY = [i for i, writer in _WRITERS.items() if writer is _text_or_null]
_OTHERS = [(i, writer) for i, writer in _WRITERS.items() if writer is not _text_or_null]


def job_of(row: tuple[Any, ...]) -> Job:
    """`row` starts with COLUMNS."""
    values = list(row[: len(FIELDS)])
    for i, reader, empty in _READERS:
        text = values[i]
        values[i] = empty if text is None else reader(text)
    return Job(*values)


def values_of(job: Job) -> list[Any]:
    values = list(astuple(job))
    for i in _OFTEN_EMPTY:  # a new job has hardly any of them, so no call
        value = values[i]
        values[i] = _encode(value).decode() if value else None
    for i, writer in _OTHERS:
        values[i] = writer(values[i])
    return values


def event_of(row: tuple[Any, ...]) -> Event:
    """`row` is EVENT_COLUMNS."""
    number, job_id, type_, at, job, tenant = row
    return Event(number, job_id, type_, at, msgspec.json.decode(job), tenant)


def difference(before: Job, after: Job) -> tuple[tuple[int, ...], list[Any]]:
    """The columns that a change writes, as indices of FIELDS, and their values. Unchanged fields are identical objects, so
    `is` skips them quickly.
    """
    old, new = astuple(before), astuple(after)
    columns = tuple([i for i in compress(_INDICES, map(is_not, old, new)) if old[i] != new[i]])
    return columns, [_WRITERS[i](new[i]) if i in _WRITERS else new[i] for i in columns]
