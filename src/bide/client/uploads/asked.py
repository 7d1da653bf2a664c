"""What a submission with files asks for, in the forms in which it is sent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, cast

import msgspec

from bide.client.submission import (
    Given,
    SubmitOptions,
    key_header,
    quoted_key,
    render_submission,
    submission_headers,
)
from bide.client.uploads.source import Source
from bide.core.wire import encode

ONLY = ""  # stands for the only parameter that takes a file, whatever it is called
_NUMBER = "/"  # between a parameter that takes a list and the place in it


def parameter_of(name: str) -> str:
    return name.partition(_NUMBER)[0]


class Asked:
    """A submission as it was asked for. `sources` are by parameter; those of one that takes a list have numbers."""

    def __init__(
        self, kind: str, input: Any, options: SubmitOptions, sources: Mapping[str, Source]
    ) -> None:
        if input is not None and not isinstance(input, Mapping):
            raise TypeError(f"an input with files is an object by parameter, not {type(input).__name__}")
        self.sources = sources
        self.size = sum(source.size for source in sources.values())
        self.body = render_submission(kind, input, options)
        self.key = options.get("idempotency_key")
        self.dedupe = options.get("dedupe")
        self.hold = options.get("wait") or 0.0
        self.preference = submission_headers(SubmitOptions(wait=options.get("wait")))
        paths = {name: os.fsencode(source.path or "") for name, source in sources.items()}
        asked = msgspec.json.encode([self.body, self.key, paths], order="sorted")
        self.what = hashlib.sha256(asked).hexdigest()

    def headers(self, key: str | None) -> dict[str, str]:
        return {**self.preference, **key_header(key)}

    def metadata(self, name: str, key: str | None) -> dict[str, str]:
        """For an upload that becomes the job: what is asked for, in tus's form."""
        told = about(self.sources[name])
        for field, value in self.body.items():
            told[field] = (
                value if isinstance(value, str) and field != "input" else encode(value).decode()
            )
        if name != ONLY:
            told["parameter"] = parameter_of(name)
        if key is not None:
            told["idempotencyKey"] = quoted_key(key)
        return told

    def filled(self, uploads: Mapping[str, str]) -> dict[str, Any]:
        """The submission with the ids of uploads in the place of its files."""
        given = dict(self.body.get("input") or {})
        for name, upload in uploads.items():
            if _NUMBER in name:
                given.setdefault(parameter_of(name), []).append({"upload": upload})
            else:
                given[name] = {"upload": upload}
        return {**self.body, "input": given}


def about(source: Source) -> dict[str, str]:
    return {"filename": source.name, "filetype": source.content_type}


def open_sources(options: SubmitOptions, stack: ExitStack) -> dict[str, Source]:
    """By parameter. In a thread."""
    file, files = options.get("file"), options.get("files")
    if file is not None and files:
        raise TypeError("give `file`, or `files` with a name for each, not both")
    given: dict[str, Given] = {} if file is None else {ONLY: file}
    for name, one in (files or {}).items():
        if isinstance(one, list | tuple):
            given.update({f"{name}{_NUMBER}{number}": part for number, part in enumerate(one)})
        else:
            given[name] = cast(Given, one)
    return {name: stack.enter_context(Source(one)) for name, one in given.items()}
