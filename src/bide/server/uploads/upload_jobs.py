"""The jobs of uploads. The submission is validated when the upload begins; the job is created when it is complete.

A submission is read and validated once. After a restart the app may be a newer one, so it is validated once more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import InvalidInput
from bide.server.intake import (
    CheckedSubmission,
    Intake,
    Submission,
    make_submission,
    read_submission,
)
from bide.server.registry import Kind, Registry
from bide.server.store import NewJob
from bide.server.upload_record import Upload

# A form part of this name fills the only file parameter, regardless of the parameter's name.
DEFAULT_PART = "file"
# Limits the submissions of incomplete uploads in memory. The others are read and validated again when they are needed.
MAX_CACHED_BYTES = 64 * 1024 * 1024
ENTRY_BYTES = 2000  # of an entry, without its input
_read_values = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UploadJob(msgspec.Struct, frozen=True):
    """The job that an upload creates, as the request that begins the upload describes it."""

    submission: Submission
    encoded: msgspec.Raw
    parameter: str | None  # the parameter for the file; None: the only one that accepts a file
    key: str | None
    trace_id: str


def make_upload_job(
    fields: Mapping[str, Any],
    input: bytes | None,
    *,
    parameter: str | None,
    key: str | None,
    trace_id: str,
) -> UploadJob:
    """`fields` are those of a submission except its input; None values are left out. Raise InvalidInput."""
    body = {name: value for name, value in fields.items() if value is not None}
    if input is not None:
        body["input"] = msgspec.Raw(input)
    submission = make_submission(body)
    try:
        encoded = msgspec.Raw(msgspec.json.encode(body))
    except (msgspec.EncodeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"the submission cannot be encoded as JSON: {error}") from None
    return UploadJob(submission, encoded, parameter, key, trace_id)


class UploadJobs:
    """Creates jobs from the submissions of uploads."""

    def __init__(self, registry: Registry, intake: Intake) -> None:
        self._registry = registry
        self.intake = intake
        # With its bytes; the oldest first.
        self._checked: OrderedDict[str, tuple[CheckedSubmission, int]] = OrderedDict()
        self._cached_bytes = 0

    async def check(self, upload: Upload, submission: Submission) -> NewJob:
        """Validate the submission of a new upload. Raise a Problem if the job would be rejected for any content of the
        file. Return the job without the file.
        """
        self.intake.check_open()
        checked = self._check(upload, submission)
        new = await self.intake.make_job(
            checked,
            key=upload.key,
            trace_id=upload.trace_id,
            uploads={upload.id: upload},
            tenant=upload.tenant,
        )
        self._cache(upload.id, checked)
        return new

    async def new_job(self, upload: Upload) -> NewJob:
        """Return the job of an upload with a submission; store nothing."""
        return await self.intake.make_job(
            self._known(upload),
            key=upload.key,
            trace_id=upload.trace_id,
            uploads={upload.id: upload},
            promised=True,
            tenant=upload.tenant,
        )

    def restricts_types(self, upload: Upload) -> bool:
        """Whether the kind accepts only some content types, which the first bytes show."""
        return self._known(upload).kind.restricts_types

    def forget(self, upload_id: str) -> None:
        """Remove the submission from the cache, because the upload is complete or removed."""
        _, size = self._checked.pop(upload_id, (None, 0))
        self._cached_bytes -= size

    async def from_form(
        self,
        submission: Submission,
        files: Mapping[str, Sequence[Upload]],
        *,
        key: str | None,
        trace_id: str,
        tenant: str = "-",
    ) -> NewJob:
        """Return the job of a form, whose files have the names of parameters."""
        self.intake.check_open()
        kind = self._registry.kind(submission.kind)
        only = set(files) == {DEFAULT_PART} and DEFAULT_PART not in kind.file_parameters
        given = {None if only else name: uploads for name, uploads in files.items()}
        checked = self.intake.check(_with_files(kind, submission, given), key)
        uploads = {upload.id: upload for several in files.values() for upload in several}
        return await self.intake.make_job(
            checked, key=key, trace_id=trace_id, uploads=uploads, tenant=tenant
        )

    def _known(self, upload: Upload) -> CheckedSubmission:
        assert upload.submission is not None
        if upload.id in self._checked:
            return self._checked[upload.id][0]
        checked = self._check(upload, read_submission(upload.submission))
        self._cache(upload.id, checked)
        return checked

    def _cache(self, upload_id: str, checked: CheckedSubmission) -> None:
        size = ENTRY_BYTES + len(memoryview(checked.submission.input))
        self._checked[upload_id] = (checked, size)
        self._cached_bytes += size
        while self._cached_bytes > MAX_CACHED_BYTES:
            self.forget(next(iter(self._checked)))

    def _check(self, upload: Upload, submission: Submission) -> CheckedSubmission:
        kind = self._registry.kind(submission.kind)
        filled = _with_files(kind, submission, {upload.parameter or None: [upload]})
        return self.intake.check(filled, upload.key)


def _with_files(
    kind: Kind, submission: Submission, files: Mapping[str | None, Sequence[Upload]]
) -> Submission:
    """Return the submission with the uploads as values of its file parameters; None is the only free one."""
    if not files:
        return submission
    given: dict[str, Any] = _values(submission)
    for name, uploads in files.items():
        parameter = name or _free_parameter(kind, given)
        several = kind.file_parameters.get(parameter)
        if several is None:
            named = ", ".join(kind.file_parameters) or "none"
            raise InvalidInput.at(
                f"/input/{parameter}",
                f"kind {kind.name} has no such file parameter; its file parameters: {named}",
            )
        if parameter in given:
            raise InvalidInput.at(f"/input/{parameter}", "given twice: in the input and as a file")
        refs = [{"upload": upload.id} for upload in uploads]
        if not several and len(refs) > 1:
            raise InvalidInput.at(f"/input/{parameter}", f"accepts one file, got {len(refs)}")
        given[parameter] = refs if several else refs[0]
    return replace(submission, input=msgspec.Raw(msgspec.json.encode(given)))


def _free_parameter(kind: Kind, given: Mapping[str, Any]) -> str:
    """Return the parameter for a file whose parameter the caller did not name."""
    free = [name for name in kind.file_parameters if name not in given]
    if len(free) == 1:
        return free[0]
    if not kind.file_parameters:
        raise InvalidInput.at("/input", f"kind {kind.name} has no file parameter")
    named = ", ".join(kind.file_parameters)
    raise InvalidInput.at(
        "/parameter", f"kind {kind.name} has the file parameters {named}: name one in `parameter`"
    )


def _values(submission: Submission) -> dict[str, Any]:
    """The values of the input as they are written, by parameter. The validation reads them."""
    try:
        return _read_values.decode(submission.input)
    except msgspec.ValidationError:
        raise InvalidInput.at("/input", "must be an object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput.at("/input", f"not JSON: {error}") from None
