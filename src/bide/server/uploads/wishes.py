"""The job that an upload is to become: what its sender asks for, checked before a byte is sent and made at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import InvalidInput
from bide.core.upload import Upload
from bide.server.intake import Intake, Submission, read_submission
from bide.server.registry import Kind, Registry
from bide.server.store import NewJob

UNNAMED = "file"  # a part of a form that is called so goes to the only parameter that takes a file


def _refuse(place: str, detail: str) -> InvalidInput:
    return InvalidInput(f"{place}: {detail}", errors=[{"pointer": place, "detail": detail}])


class Wishes:
    """Turns what was asked for into jobs."""

    def __init__(self, registry: Registry, intake: Intake) -> None:
        self._registry = registry
        self._intake = intake

    async def check(self, upload: Upload) -> None:
        """A Problem when no job could come of it, whatever its bytes are."""
        if upload.submission is not None:
            await self.make([upload], promised=False)

    async def make(self, uploads: Sequence[Upload], *, promised: bool = True) -> NewJob:
        """The job of an upload that carries a wish; nothing is stored. `promised`: it was checked when the upload began."""
        (upload,) = uploads
        assert upload.submission is not None
        submission = read_submission(upload.submission)
        kind = self._registry.kind(submission.kind)
        name = upload.parameter or self.parameter(kind, submission)
        return await self.of(
            submission,
            {name: [upload]},
            key=upload.key,
            trace_id=upload.trace_id,
            promised=promised,
        )

    def choosy(self, upload: Upload) -> bool:
        """Whether it depends on its first bytes what comes of it."""
        assert upload.submission is not None
        return self._registry.kind(read_submission(upload.submission).kind).choosy

    async def of(
        self,
        submission: Submission,
        files: Mapping[str, Sequence[Upload]],
        *,
        key: str | None,
        trace_id: str | None,
        promised: bool = False,
    ) -> NewJob:
        """The job of a submission whose files go to these parameters."""
        kind = self._registry.kind(submission.kind)
        if set(files) == {UNNAMED} and UNNAMED not in kind.file_parameters:
            files = {self.parameter(kind, submission): files[UNNAMED]}
        filled = with_files(kind, submission, files)
        given = {upload.id: upload for uploads in files.values() for upload in uploads}
        return await self._intake.prepare(
            filled, key=key, trace_id=trace_id, uploads=given, promised=promised
        )

    def parameter(self, kind: Kind, submission: Submission) -> str:
        """The one that takes the file when it was not named."""
        given = _input(submission)
        free = [name for name in kind.file_parameters if name not in given]
        if len(free) == 1:
            return free[0]
        if not kind.file_parameters:
            raise _refuse("/input", f"kind {kind.name} takes no file")
        named = ", ".join(kind.file_parameters)
        raise _refuse("/parameter", f"kind {kind.name} has {named}: name the one that takes this file")

    def stored(self, new: NewJob) -> None:
        """Tells the engine; before the commit, so that the claim rides in the same transaction."""
        self._intake.hint(new)


def _input(submission: Submission) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(submission.input)
    except msgspec.DecodeError as error:
        raise _refuse("/input", f"this is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise _refuse("/input", "an object is needed")
    return given


def with_files(kind: Kind, submission: Submission, files: Mapping[str, Sequence[Upload]]) -> Submission:
    """The submission with uploads in the place of its file parameters."""
    if not files:
        return submission
    given = _input(submission)
    for name, uploads in files.items():
        several = kind.file_parameters.get(name)
        if several is None:
            named = ", ".join(kind.file_parameters) or "none"
            raise _refuse(f"/input/{name}", f"kind {kind.name} takes no such file; there are: {named}")
        if name in given:
            raise _refuse(f"/input/{name}", "it is given in the input and as a file")
        refs = [{"upload": upload.id} for upload in uploads]
        if not several and len(refs) > 1:
            raise _refuse(f"/input/{name}", "it takes one file, and several were sent")
        given[name] = refs if several else refs[0]
    return replace(submission, input=msgspec.Raw(msgspec.json.encode(given)))


def wish(
    *,
    kind: str,
    input: bytes | None = None,
    dedupe: str | None = None,
    **options: Any,
) -> msgspec.Raw:
    """What is kept of a wish: the body of a submission. Problems when it is not well formed."""
    body: dict[str, Any] = {"kind": kind}
    if input is not None:
        body["input"] = msgspec.Raw(input)
    body.update({name: value for name, value in options.items() if value is not None})
    if dedupe is not None:
        body["dedupe"] = dedupe
    try:
        raw = msgspec.json.encode(body)
    except (msgspec.EncodeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"the job cannot be read: {error}") from None
    read_submission(raw)
    return msgspec.Raw(raw)
