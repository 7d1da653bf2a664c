"""A submission with files, in the forms in which it can be sent."""

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
    quoted_key,
    render_submission,
    submission_headers,
)
from bide.client.uploads.source import Source
from bide.core.wire.http import encode

ONLY = ""  # stands for the only parameter that accepts a file
_NUMBER = "/"  # between a parameter that accepts a list and the index in it


def parameter_of(name: str) -> str:
    return name.partition(_NUMBER)[0]


class FileSubmission:
    """A submission with files. `sources` is by parameter; the files of a list have the parameter and an index."""

    def __init__(
        self, kind: str, input: Any, options: SubmitOptions, sources: Mapping[str, Source]
    ) -> None:
        if input is not None and not isinstance(input, Mapping):
            raise TypeError(
                f"The input of a submission with files must be an object, not {type(input).__name__}"
            )
        self.sources = sources
        self.size = sum(source.size for source in sources.values())
        self.body = render_submission(kind, input, options)
        self.key = options.get("idempotency_key")
        self.dedupe = options.get("dedupe")
        self.hold = options.get("wait") or 0.0
        paths = {name: os.fsencode(source.path or "") for name, source in sources.items()}
        identity = msgspec.json.encode([self.body, self.key, paths], order="sorted")
        self.what = hashlib.sha256(identity).hexdigest()

    def headers(self, key: str | None) -> dict[str, str]:
        return submission_headers(key, self.hold)

    def metadata(self, name: str, key: str | None) -> dict[str, str]:
        """Return the tus metadata of an upload that becomes the job."""
        metadata = about(self.sources[name])
        for field, value in self.body.items():
            plain = isinstance(value, str) and field != "input"
            metadata[field] = value if plain else encode(value).decode()
        if name != ONLY:
            metadata["parameter"] = parameter_of(name)
        if key is not None:
            metadata["idempotencyKey"] = quoted_key(key)
        return metadata

    def filled(self, uploads: Mapping[str, str]) -> dict[str, Any]:
        """Return the submission with the ids of uploads in place of its files."""
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
    """Open the files of a submission, by parameter. Blocks: call it in a thread."""
    file, files = options.get("file"), options.get("files")
    if file is not None and files:
        raise TypeError("Give either `file`, or `files` with a parameter for each, not both")
    given: dict[str, Given] = {} if file is None else {ONLY: file}
    for name, one in (files or {}).items():
        if isinstance(one, list | tuple):
            given.update({f"{name}{_NUMBER}{number}": part for number, part in enumerate(one)})
        else:
            given[name] = cast(Given, one)
    return {name: stack.enter_context(Source(one)) for name, one in given.items()}
