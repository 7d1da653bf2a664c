"""The jobs of uploads. The submission is validated when the upload begins; the job is created when it is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import InvalidInput
from bide.server.intake import Intake, Submission, read_submission
from bide.server.registry import Kind, Registry
from bide.server.store import NewJob
from bide.server.upload_record import Upload

# A form part of this name fills the only file parameter, regardless of the parameter's name.
DEFAULT_PART = "file"


def _invalid(pointer: str, detail: str) -> InvalidInput:
    return InvalidInput(f"{pointer}: {detail}", errors=[{"pointer": pointer, "detail": detail}])


class UploadJobs:
    """Creates jobs from the submissions of uploads."""

    def __init__(self, registry: Registry, intake: Intake) -> None:
        self._registry = registry
        self._intake = intake

    async def check(self, upload: Upload) -> None:
        """Raises a Problem if the job would be rejected for any content of the file."""
        if upload.submission is not None:
            await self.new_job(upload, promised=False)

    async def new_job(self, upload: Upload, *, promised: bool = True) -> NewJob:
        """Returns the job of an upload with a submission; stores nothing. `promised`: it was validated before."""
        assert upload.submission is not None
        submission = read_submission(upload.submission)
        kind = self._registry.kind(submission.kind)
        name = upload.parameter or self.parameter(kind, submission)
        return await self.from_submission(
            submission,
            {name: [upload]},
            key=upload.key,
            trace_id=upload.trace_id,
            promised=promised,
        )

    def checks_content(self, upload: Upload) -> bool:
        """Whether the kind accepts only some content types, which the first bytes show."""
        assert upload.submission is not None
        return self._registry.kind(read_submission(upload.submission).kind).restricts_types

    async def from_submission(
        self,
        submission: Submission,
        files: Mapping[str, Sequence[Upload]],
        *,
        key: str | None,
        trace_id: str | None,
        promised: bool = False,
    ) -> NewJob:
        """Returns the job of a submission with the files of these parameters."""
        kind = self._registry.kind(submission.kind)
        if set(files) == {DEFAULT_PART} and DEFAULT_PART not in kind.file_parameters:
            files = {self.parameter(kind, submission): files[DEFAULT_PART]}
        filled = with_files(kind, submission, files)
        given = {upload.id: upload for uploads in files.values() for upload in uploads}
        return await self._intake.prepare(
            filled, key=key, trace_id=trace_id, uploads=given, promised=promised
        )

    def parameter(self, kind: Kind, submission: Submission) -> str:
        """Returns the parameter for a file whose parameter the caller did not name."""
        given = _input(submission)
        free = [name for name in kind.file_parameters if name not in given]
        if len(free) == 1:
            return free[0]
        if not kind.file_parameters:
            raise _invalid("/input", f"kind {kind.name} has no file parameter")
        named = ", ".join(kind.file_parameters)
        raise _invalid(
            "/parameter", f"kind {kind.name} has the file parameters {named}: name one in `parameter`"
        )

    def notify_engine(self, new: NewJob) -> None:
        """Wakes the engine before the commit, so that it can claim the job in the same transaction."""
        self._intake.hint(new)


def _input(submission: Submission) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(submission.input)
    except msgspec.DecodeError as error:
        raise _invalid("/input", f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise _invalid("/input", "must be an object")
    return given


def with_files(kind: Kind, submission: Submission, files: Mapping[str, Sequence[Upload]]) -> Submission:
    """Returns the submission with the uploads as values of its file parameters."""
    if not files:
        return submission
    given = _input(submission)
    for name, uploads in files.items():
        several = kind.file_parameters.get(name)
        if several is None:
            named = ", ".join(kind.file_parameters) or "none"
            raise _invalid(
                f"/input/{name}",
                f"kind {kind.name} has no such file parameter; its file parameters: {named}",
            )
        if name in given:
            raise _invalid(f"/input/{name}", "given twice: in the input and as a file")
        refs = [{"upload": upload.id} for upload in uploads]
        if not several and len(refs) > 1:
            raise _invalid(f"/input/{name}", f"accepts one file, got {len(refs)}")
        given[name] = refs if several else refs[0]
    return replace(submission, input=msgspec.Raw(msgspec.json.encode(given)))


def encode_submission(
    *,
    kind: str,
    input: bytes | None = None,
    dedupe: str | None = None,
    **options: Any,
) -> msgspec.Raw:
    """Returns the body of a submission. Raises a Problem if it is malformed."""
    body: dict[str, Any] = {"kind": kind}
    if input is not None:
        body["input"] = msgspec.Raw(input)
    body.update({name: value for name, value in options.items() if value is not None})
    if dedupe is not None:
        body["dedupe"] = dedupe
    try:
        raw = msgspec.json.encode(body)
    except (msgspec.EncodeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"the submission cannot be encoded as JSON: {error}") from None
    read_submission(raw)
    return msgspec.Raw(raw)
