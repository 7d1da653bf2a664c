"""Resolve: downloads the result of a finished job to files on disk, page by page.

1. If a URL of the result has expired, the status of the job is requested again for a new one, a few times.
2. Memory holds at most one page, if it has to be read to find the next one, up to a limit.
3. URLs are not in the checkpoint. After a crash the status of the job is requested again.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bide.client.account import EXPIRED
from bide.client.apis import GONE, NOT_FOUND, Answer, Call, Found, Seen
from bide.client.apis.pagination import NextMissing, NextPage
from bide.client.apis.paths import Document, source
from bide.client.apis.values import absolute
from bide.client.http.download import MOST_PAGES, Damaged, download, expectation, write_file
from bide.client.http.transport import LARGEST
from bide.client.job_state import JobState
from bide.core.errors import BideError, ErrorInfo, ServiceError, ServiceUnreachable
from bide.pipeline.plan.form import ResultTable
from bide.pipeline.run.context import (
    ExportRefused,
    ExportStopped,
    ExportUpdate,
    RunContext,
    RunHalted,
    explained,
)
from bide.pipeline.run.exports import PlannedExport
from bide.pipeline.run.pages import Pager
from bide.pipeline.run.phase import DownloadedFile, Export, PhaseEvent

RENEWALS = 3  # times that an expired URL is renewed
DAMAGED = 2  # times that a damaged file is downloaded again


@dataclass(frozen=True)
class ResultPart:
    """A part of a result: at a URL, or a value in the status."""

    found: Found | None = None
    value: Any = None


async def resolve(context: RunContext, planned: PlannedExport, export: Export) -> Export:
    job = context.job(export, planned.kind)
    folder = context.checkpoint.files(export.key)
    try:
        await asyncio.to_thread(_empty, folder)
        async with context.downloads:
            files = await _fetch(context, planned, export, job, folder)
    except (ServiceError, ServiceUnreachable) as error:
        raise explained(error) from error
    except OSError as error:
        raise RunHalted(
            f"{folder} cannot be written: {error.strerror or error}. Free disk space and run again; the run resumes"
        ) from error
    return await context.step(export, PhaseEvent.FETCHED, files=tuple(files))


async def _fetch(
    context: RunContext, planned: PlannedExport, export: Export, job: JobState, folder: Path
) -> list[DownloadedFile]:
    files: list[DownloadedFile] = []
    number = renewals = damaged = 0
    parts = await _parts(context, planned, job)
    while number < len(parts):
        before = len(files)
        try:
            await _one(context, planned, export, parts[number], folder, files)
        except ServiceError as error:
            if error.status not in (400, *EXPIRED) or _rejected(context, error):
                raise
            renewals += 1
            if renewals > RENEWALS:
                message = (
                    f"the result cannot be downloaded after {RENEWALS} renewals of its URL: {error}"
                )
                raise ExportRefused(ErrorInfo("RESULT_EXPIRED", message, retryable=True)) from None
            await context.timing.sleep(2.0 ** (renewals - 1) - 1.0)
            job.seen = None
            parts = await _parts(context, planned, job)
            del files[before:]
        except Damaged as error:
            damaged += 1
            if damaged > DAMAGED:
                raise ExportStopped("DAMAGED", str(error)) from None
            del files[before:]
        else:
            number += 1
    return files


def _rejected(context: RunContext, error: ServiceError) -> bool:
    """Whether the credential is wrong, rather than the URL."""
    return error.status == 401 and error.url.startswith(context.account.api.url or "-")


async def _parts(context: RunContext, planned: PlannedExport, job: JobState) -> list[ResultPart]:
    if job.seen is None or not job.seen.terminal:
        await context.refresh(job)
    seen = job.seen
    assert seen is not None
    if seen.error is not None and seen.error.code in (NOT_FOUND, GONE):
        raise ExportRefused(seen.error, lost=True)
    parts = parts_of(seen, planned.dataset.table.result, context.account.api.url or "")
    if not parts:
        message = (
            f"job {job.job_id} succeeded but has no result. Check `take` and `at` of [exports.result]"
        )
        raise ExportRefused(ErrorInfo("NO_RESULT", message))
    return parts


def parts_of(seen: Seen, result: ResultTable, base: str) -> list[ResultPart]:
    """The parts of the status that are the export, in order."""
    files = seen.files
    if seen.record is not None:
        files = tuple(
            Found(f.name, f.url, f.content_type, f.size, f.sha256 or None) for f in seen.record.files
        )
    if result.at is not None:
        return _at(source(result.at)(Document(seen.result)), base)
    take = result.take
    if take == "auto":
        take = "files" if files and seen.result is None else "url" if seen.result_url else "value"
    if take == "files":
        return [ResultPart(_absolute(file, base)) for file in files]
    if take == "url":
        known = next((file for file in files if file.url == seen.result_url), None)
        url = seen.result_url
        return [] if url is None else [ResultPart(known or Found("result", url))]
    return [] if seen.result is None else [ResultPart(value=seen.result)]


def _at(value: Any, base: str) -> list[ResultPart]:
    """A URL, several, or the rows themselves."""
    many = value if isinstance(value, list) and value else [value]
    urls = [absolute(base + "/", one) for one in many]
    if all(isinstance(one, str) for one in many) and None not in urls:
        return [ResultPart(Found("result", url)) for url in urls if url is not None]
    return [] if value is None else [ResultPart(value=value)]


def _absolute(file: Found, base: str) -> Found:
    return msgspec.structs.replace(file, url=absolute(base + "/", file.url) or file.url)


async def _one(
    context: RunContext,
    planned: PlannedExport,
    export: Export,
    part: ResultPart,
    folder: Path,
    files: list[DownloadedFile],
) -> None:
    if part.found is None:
        data = msgspec.json.encode(part.value)
        files.append(await asyncio.to_thread(_write, folder / f"{len(files):05}", data))
        return
    table = planned.dataset.table.result
    api = context.account.api
    pager = Pager(table.pages, table.records) if table.pages is not None else None
    call: Call | None = api.calls.fetch(part.found.url)
    if pager is not None:
        call = api.calls.fetch(pager.first(part.found.url))
    rule = api.calls.next_page() if pager is None else None
    seen: set[str] = set()
    number = 0
    while call is not None:
        if call.url in seen or number >= MOST_PAGES:
            raise ExportRefused(
                ErrorInfo(
                    "PAGES",
                    f"there are more than {MOST_PAGES} pages, or page {number} names an earlier one as the next",
                )
            )
        seen.add(call.url)
        path = folder / f"{len(files):05}"
        expected = part.found if pager is None and number == 0 else None
        retrying = context.retrying(call.url)
        done = await download(
            context.account.open_download, call, path, retrying, sync=True, **expectation(expected)
        )
        file, headers = DownloadedFile(path.name, done.size, done.sha256), done.headers
        _check_new(file, files, paged=number > 0)
        files.append(file)
        context.notify(ExportUpdate(export, None, f"{len(files)} files", moved=False))
        try:
            url = await _next(rule or pager, call.url, number, headers, path)
            call = None if url is None else api.calls.fetch(url)
        except NextMissing as error:
            raise ExportRefused(ErrorInfo("PAGES", str(error))) from None
        number += 1


def _check_new(file: DownloadedFile, files: Sequence[DownloadedFile], paged: bool) -> None:
    """An API that ignores the parameter returns the first page again and again."""
    if paged and file.sha256 == files[-1].sha256 and file.size > 2:
        raise ExportRefused(
            ErrorInfo("PAGES", "two pages in a row are the same. Check `query` of `pages`")
        )


async def _next(
    rule: NextPage | Pager | None, url: str, number: int, headers: Mapping[str, str], path: Path
) -> str | None:
    """The URL after page `number`, which is in the file at `path`."""
    if rule is None:
        return None
    body = await asyncio.to_thread(_read, path) if rule.reads_body else b""
    page = Answer(200, headers, body, url)
    if isinstance(rule, Pager):
        return rule.following(url, number, page)
    return rule.following(url, page)


def _read(path: Path) -> bytes:
    if path.stat().st_size > LARGEST:
        raise BideError(f"{path} is a page of more than {LARGEST >> 20} MiB. Request smaller pages")
    return path.read_bytes()


def _write(path: Path, data: bytes) -> DownloadedFile:
    write_file(path, data)
    return DownloadedFile(path.name, len(data), hashlib.sha256(data).hexdigest())


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)


def intact(folder: Path, files: Sequence[DownloadedFile]) -> bool:
    """Whether the downloaded files are still there. Sizes suffice: a file was synced to disk before it got its name."""
    try:
        return bool(files) and all((folder / f.name).stat().st_size == f.size for f in files)
    except OSError:
        return False
