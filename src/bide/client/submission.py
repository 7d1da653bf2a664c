"""Submissions: the options in Python, and the request that they become."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO, Required, TypedDict

import msgspec

from bide.client.apis import Api, Call
from bide.core.clock import read_instant, render_instant
from bide.core.errors import SetupError
from bide.core.wire.http import JSON_TYPE, Dedupe, encode

BATCH = 1000
BATCH_SIZE = 512 * 1024  # half of the largest body that a service accepts

Instant = datetime | float | str
Given = str | os.PathLike[str] | BinaryIO  # a file


class JobOptions(TypedDict, total=False):
    """The options of a job besides its kind and input."""

    priority: int | None  # a higher one starts first
    queue: str | None  # instead of the kind's own
    run_at: Instant | None  # the earliest start: an aware datetime, seconds since the epoch, or RFC 3339
    deadline: Instant | None  # the latest end
    labels: Mapping[str, str] | None
    dedupe: Dedupe | None  # the same files and input return the first job
    # A URL that receives the job's events, or `url`, `events` and `secret`.
    webhook: str | Mapping[str, Any] | None


class SubmitOptions(JobOptions, total=False):
    """The options of `submit`."""

    idempotency_key: str | None  # the same key and input return the first job
    wait: float | None  # seconds for which the service holds the response until the job has ended
    file: Given | None  # a path or a seekable file object, for the only parameter that takes a file
    # The same by parameter; several files for a parameter that takes a list.
    files: Mapping[str, Given | Sequence[Given]] | None
    # Of an upload. True: a bar in a terminal (default); or a tqdm bar; or False.
    progress: Any


class JobSubmission(JobOptions, total=False):
    """One job of `submit_many`."""

    kind: Required[str]
    input: Any


_WIRE_NAMES = {"run_at": "runAt"}


def render_submission(kind: str, input: Any, options: JobOptions) -> dict[str, Any]:
    """The body without the fields that were not given, so that the service's defaults apply."""
    body: dict[str, Any] = {"kind": kind}
    if input is not None:
        body["input"] = input
    for name in JobOptions.__annotations__:
        value: Any = options.get(name)
        if value is not None:
            if name in ("run_at", "deadline"):
                value = read_time(value)
            elif name == "webhook" and isinstance(value, str):
                value = {"url": value}
            body[_WIRE_NAMES.get(name, name)] = value
    return body


def submission_call(api: Api, kind: str, input: Any, options: SubmitOptions) -> Call:
    """The request that submits one job without files; SetupError for an option that the API does not have."""
    if api.is_bide:
        body = encode(render_submission(kind, input, options))
        key = options.get("idempotency_key")
        headers = {"Content-Type": JSON_TYPE, **submission_headers(key, options.get("wait"))}
        hold = options.get("wait") or 0.0
        return Call("POST", f"{api.url}/jobs", headers, body, hold=hold, submission=True)
    others = [name for name, value in options.items() if value is not None and name != "idempotency_key"]
    if others:
        raise SetupError(f"{api.name} has no option {', '.join(others)}: put it into the input")
    return api.submissions.submit(kind, input, options.get("idempotency_key"))


def batches(jobs: Iterable[JobSubmission]) -> Iterator[list[msgspec.Raw]]:
    """Yield batches that a service accepts, by number and by size."""
    batch: list[msgspec.Raw] = []
    size = 0
    for job in jobs:
        check_names("a job of submit_many", job, JobSubmission)
        body = encode(render_submission(job["kind"], job.get("input"), job))
        if batch and (len(batch) == BATCH or size + len(body) > BATCH_SIZE):
            yield batch
            batch, size = [], 0
        batch.append(msgspec.Raw(body))
        size += len(body)
    if batch:
        yield batch


def check_names(what: str, given: Mapping[str, Any], form: type) -> None:
    """Raise TypeError for a misspelt option, as Python does for a misspelt parameter."""
    unknown = set(given) - set(form.__annotations__)
    if unknown:
        raise TypeError(
            f"{what} has no {', '.join(sorted(unknown))}; there are {', '.join(form.__annotations__)}"
        )


def submission_headers(key: str | None, wait: float | None = None) -> dict[str, str]:
    headers = {} if key is None else {"Idempotency-Key": quoted_key(key)}
    if wait:
        headers["Prefer"] = f"wait={wait:.0f}"
    return headers


def quoted_key(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def read_time(value: Instant) -> str:
    """The time as RFC 3339; ValueError if it is not a time, or has no time zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a datetime needs a time zone: datetime.now(UTC), for example")
        return render_instant(value.timestamp())
    if isinstance(value, str):
        read_instant(value)
        return value
    return render_instant(value)
