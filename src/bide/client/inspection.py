"""One answer beside its description: which of the described fields are there, and can be read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bide.client.apis import Ref, Seen
from bide.client.apis.form import Description, Sources
from bide.client.apis.paths import Headers, source
from bide.client.apis.values import (
    absolute,
    count,
    instant,
    number,
    retry_after,
    seconds,
    text,
    without_credentials,
    word,
)
from bide.core.clock import render_instant

LONGEST = 60  # characters of a value that is shown

_ALWAYS: dict[str, Callable[[Any], Any]] = {"started_at": instant, "message": text}
_LIVE: dict[str, Callable[[Any], Any]] = {
    "count": number,
    "total": number,
    "position": count,
    "eta": instant,
    "remaining": seconds,
    "retry_after": seconds,
    "moved": lambda value: value if type(value) is str else None,
}
_ENDED: dict[str, Callable[[Any], Any]] = {"finished_at": instant, "expires_at": instant}


class Finding(msgspec.Struct, frozen=True):
    """What was found out about one field of a description; `fits` is None when nothing was."""

    field: str
    fits: bool | None
    detail: str


def taken(form: Description, headers: Headers, body: Any, ref: Ref) -> Iterator[Finding]:
    """What the answer to a submission was to tell."""
    submit = form.submit
    assert submit is not None
    if submit.id is not None:
        yield _found("submit.id", submit.id, word, headers, body, ref)
    if submit.status_url is not None:
        yield _found("submit.status_url", submit.status_url, _address, headers, body, ref)
    for name in submit.remember:
        value = ref.more.get(name)
        detail = "not told" if value is None else shown(value)
        yield Finding(f"submit.remember.{name}", None if value is None else True, detail)


def fields(form: Description, seen: Seen, headers: Headers, body: Any, ref: Ref) -> Iterator[Finding]:
    """The table [read], as far as the state makes it interesting."""
    read = form.read
    if read.id is not None:
        yield _found("read.id", read.id, word, headers, body, ref)
    live = seen.state in ("live", "unknown")
    if live and read.progress is not None:
        yield _progress(read.progress, seen, headers, body, ref)
    for name, convert in {**_ALWAYS, **(_LIVE if live else _ENDED)}.items():
        described = getattr(read, name)
        if described is not None:
            yield _found(f"read.{name}", described, convert, headers, body, ref)
    if live and read.retry_after is None and (advice := retry_after(headers)) is not None:
        yield Finding("read.retry_after", True, f"Retry-After says {advice:g} s")
    if seen.state in ("failed", "partial"):
        for name in ("code", "message", "step"):
            described = getattr(read.error, name)
            if described is not None:
                yield _found(f"read.error.{name}", described, text, headers, body, ref)


def outputs(form: Description, seen: Seen) -> Iterator[Finding]:
    """The result of a job that ended well, and its files."""
    if seen.state not in ("done", "partial"):
        return
    if form.result is not None:
        if seen.result is not None:
            yield Finding("result", True, f"it is {shown(seen.result)}")
        elif seen.result_url is not None:
            yield Finding("result", True, f"it is at {shown(seen.result_url)}")
        else:
            yield Finding("result", False, "the job is done, and the answer tells of no result")
    if form.files:
        names = ", ".join(file.name for file in seen.files)
        yield Finding("files", bool(names) or None, names or "the answer tells of none")


def shown(value: Any) -> str:
    """Short; an address without its query, which may be a signature."""
    if isinstance(value, str):
        said = without_credentials(value) if "://" in value else value
    elif isinstance(value, float):
        said = f"{value:g}"
    else:
        said = (
            msgspec.json.encode(value).decode() if not isinstance(value, dict | list) else _kind(value)
        )
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def _kind(value: dict[Any, Any] | list[Any]) -> str:
    what = "fields" if isinstance(value, dict) else "items"
    return f"JSON of {len(value)} {what}"


def _progress(described: Sources, seen: Seen, headers: Headers, body: Any, ref: Ref) -> Finding:
    value = source(described)(body, headers, ref)
    if seen.progress is not None:
        return Finding("read.progress", True, f"{100 * seen.progress:g} %")
    if value is None or value == "":
        return Finding("read.progress", None, "not told")
    # A log may have no bar in it yet, and `progress` may be a table that only `count` looks into.
    no_number = not isinstance(value, str | dict)
    return Finding("read.progress", False if no_number else None, f"{shown(value)} tells of no progress")


def _found(
    name: str,
    described: Sources,
    convert: Callable[[Any], Any],
    headers: Headers,
    body: Any,
    ref: Ref,
) -> Finding:
    value = source(described)(body, headers, ref)
    if value is None or value == "":
        return Finding(name, None, "not told")
    if convert(value) is None:
        return Finding(name, False, f"{shown(value)} is not what is meant here")
    read = convert(value)
    return Finding(name, True, render_instant(read) if convert is instant else shown(value))


def _address(value: Any) -> str | None:
    """Relative ones too."""
    return absolute("http://relative/", value)
