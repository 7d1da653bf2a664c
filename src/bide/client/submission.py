"""A submission as it goes over the wire: Python's names and types to the contract's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO, Literal, Required, TypedDict

import msgspec

from bide.core.clock import read_instant, render_instant
from bide.core.wire import encode

BATCH = 1000
BATCH_SIZE = 512 * 1024  # half of what a service takes in one body

Instant = datetime | float | str
Given = str | os.PathLike[str] | BinaryIO  # a file


class JobOptions(TypedDict, total=False):
    """What can be said about a job besides its kind and input."""

    priority: int | None  # higher goes first
    queue: str | None  # another than the kind's own
    run_at: Instant | None  # not before: an aware datetime, seconds since the epoch, or RFC 3339
    deadline: Instant | None  # must have ended by then
    labels: Mapping[str, str] | None
    dedupe: Literal["content"] | None  # the same files and input give the first job again


class SubmitOptions(JobOptions, total=False):
    """What `submit` takes besides kind and input."""

    idempotency_key: str | None  # the same key and input give the first job again
    wait: float | None  # let the service hold the answer up to so many seconds until the job has ended
    file: Given | None  # a path or a seekable file object, for the only parameter that takes a file
    files: (
        Mapping[str, Given | Sequence[Given]] | None
    )  # the same by parameter; several for one that takes a list
    progress: Any  # of sending files: True, as by default, a bar in a terminal; or a tqdm bar; or False


class Submission(JobOptions, total=False):
    """One job of `submit_many`."""

    kind: Required[str]
    input: Any


_WIRE_NAMES = {"run_at": "runAt"}


def render_submission(kind: str, input: Any, options: JobOptions) -> dict[str, Any]:
    """The body; fields that were not given are left out, so that the service's defaults hold."""
    body: dict[str, Any] = {"kind": kind}
    if input is not None:
        body["input"] = input
    for name in JobOptions.__annotations__:
        value: Any = options.get(name)
        if value is not None:
            instant = name in ("run_at", "deadline")
            body[_WIRE_NAMES.get(name, name)] = read_time(value) if instant else value
    return body


def batches(jobs: Iterable[Submission]) -> Iterator[list[msgspec.Raw]]:
    """As many in one request as a service takes, by number and by size."""
    batch: list[msgspec.Raw] = []
    size = 0
    for job in jobs:
        check_names("a job of submit_many", job, Submission)
        body = encode(render_submission(job["kind"], job.get("input"), job))
        if batch and (len(batch) == BATCH or size + len(body) > BATCH_SIZE):
            yield batch
            batch, size = [], 0
        batch.append(msgspec.Raw(body))
        size += len(body)
    if batch:
        yield batch


def check_names(what: str, given: Mapping[str, Any], form: type) -> None:
    """A misspelt option is told at once, as a misspelt parameter would be."""
    unknown = set(given) - set(form.__annotations__)
    if unknown:
        raise TypeError(
            f"{what} has no {', '.join(sorted(unknown))}; there are {', '.join(form.__annotations__)}"
        )


def submission_headers(options: SubmitOptions) -> dict[str, str]:
    headers = key_header(options.get("idempotency_key"))
    wait = options.get("wait")
    if wait:
        headers["Prefer"] = f"wait={wait:.0f}"
    return headers


def key_header(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": quoted_key(key)}


def quoted_key(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def read_time(value: Instant) -> str:
    """RFC 3339; ValueError when it is no instant, or one without a time zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a datetime needs a time zone: datetime.now(UTC), for example")
        return render_instant(value.timestamp())
    if isinstance(value, str):
        read_instant(value)
        return value
    return render_instant(value)
