"""What a submission with files asks for, in the forms in which it is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import msgspec

from bide.client.submission import (
    Given,
    SubmitOptions,
    key_header,
    render_submission,
    submission_headers,
)
from bide.client.uploads.source import Source
from bide.core.wire import encode

ONLY = ""  # stands for the only parameter that takes a file, whatever it is called


class Asked:
    """A submission as it was asked for."""

    def __init__(
        self, kind: str, input: Any, options: SubmitOptions, sources: Mapping[str, Source]
    ) -> None:
        self.sources = sources
        self.size = sum(source.size for source in sources.values())
        self.body = render_submission(kind, input, options)
        self.key = options.get("idempotency_key")
        self.dedupe = options.get("dedupe")
        self.hold = options.get("wait") or 0.0
        self.preference = submission_headers(SubmitOptions(wait=options.get("wait")))
        paths = {name: str(source.path) for name, source in sources.items()}
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
            told["parameter"] = name
        if key is not None:
            told["idempotencyKey"] = key
        return told


def about(source: Source) -> dict[str, str]:
    return {"filename": source.name, "filetype": source.content_type}


def open_sources(options: SubmitOptions, stack: ExitStack) -> dict[str, Source]:
    """By parameter. In a thread."""
    file, files = options.get("file"), options.get("files")
    if file is not None and files:
        raise TypeError("give `file`, or `files` with a name for each, not both")
    given: Mapping[str, Given] = files or ({} if file is None else {ONLY: file})
    return {name: stack.enter_context(Source(one)) for name, one in given.items()}
