"""A pipeline against an API over a socket: outputs, resumed runs after a crash, and reruns without requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from bide.core.errors import SetupError
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.context import ExportUpdate, RunHalted
from bide.pipeline.run.pipeline_run import RunOptions
from tests.integration.exporter import KEY, Exporter, Folder, Storage, rows

ALL = {("ada1", "1"), ("bob1", "1"), ("ada2", "2"), ("bob2", "2"), ("ada3", "3"), ("bob3", "3")}


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Storage() as storage, Exporter(storage) as exporter:
        yield exporter


@pytest.fixture
def folder(tmp_path: Path, exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("LMS_KEY", KEY)
    return Folder(tmp_path, exporter)


def students(folder: Folder) -> set[tuple[str, str]]:
    return {(row["student"], row["course"]) for row in folder.rows}


# --- a good day


async def test_every_combination_is_exported_and_published(folder: Folder, exporter: Exporter) -> None:
    outcome = await folder.sync()
    assert outcome.good
    assert students(folder) == ALL
    assert folder.phases("gradebook course=2") == [
        "INITIATING", "INITIATED", "READY", "RESOLVED", "PUBLISHED",
    ]  # fmt: skip
    assert [news.stage for news in folder.outputs] == ["normalizing", "published"]
    # What the API gave is not left behind: it is not masked.
    assert [p for p in (folder.path / "grades.sync" / "files").rglob("*") if p.is_file()] == []


async def test_a_rerun_asks_nothing_and_writes_nothing(folder: Folder, exporter: Exporter) -> None:
    await folder.sync()
    asked, before = len(exporter.asked), (folder.path / "out" / "gradebook.jsonl").stat()
    outcome = await folder.sync()
    after = (folder.path / "out" / "gradebook.jsonl").stat()
    assert outcome.good and outcome.outputs[0].stage == "unchanged"
    assert len(exporter.asked) == asked
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_another_period_is_a_new_run_and_the_same_is_not(
    folder: Folder, exporter: Exporter
) -> None:
    for period in ("monday", "monday", "tuesday"):
        await folder.sync(RunOptions(period=period))
    assert len(exporter.submitted) == 6
    await folder.sync(RunOptions(fresh=True))
    assert len(exporter.submitted) == 9


async def test_the_credential_goes_to_the_api_alone(folder: Folder, exporter: Exporter) -> None:
    await folder.sync()
    assert set(exporter.storage.header("Authorization")) == {None}
    state = folder.path / "grades.sync"
    assert not any(KEY.encode() in p.read_bytes() for p in state.rglob("*") if p.is_file())
    assert not any(b"sig=" in p.read_bytes() for p in state.rglob("*") if p.is_file())


async def test_a_schema_that_has_changed_asks_for_the_rows_anew(
    folder: Folder, exporter: Exporter
) -> None:
    await folder.sync()
    text = (folder.path / "grades.toml").read_text()
    (folder.path / "grades.toml").write_text(text.replace('type = "integer"', 'type = "string"'))
    outcome = await folder.sync()
    assert outcome.outputs[0].stage == "published"
    assert len(exporter.submitted) == 6


async def test_a_value_that_is_added_is_all_that_is_asked_for_until_then(
    folder: Folder, exporter: Exporter
) -> None:
    """The others have failed to be published: their files are still there."""
    exporter.failing["3"] = 1
    await folder.sync()
    assert sorted(exporter.submitted) == ["1", "2", "3"]
    text = (folder.path / "grades.toml").read_text()
    (folder.path / "grades.toml").write_text(text.replace("[1, 2, 3]", "[1, 2, 4]"))
    outcome = await folder.sync()
    assert outcome.good
    assert sorted(exporter.submitted) == ["1", "2", "3", "4"]
    assert {course for _, course in students(folder)} == {"1", "2", "4"}


async def test_the_api_lists_the_values_itself_page_by_page(folder: Folder, exporter: Exporter) -> None:
    text = (folder.path / "grades.toml").read_text()
    listing = '{ course = { path = "/courses", pages = { link = true } } }'
    (folder.path / "grades.toml").write_text(text.replace("{ course = [1, 2, 3] }", listing))
    assert (await folder.sync()).good
    assert students(folder) == ALL


async def test_one_file_a_combination(folder: Folder, exporter: Exporter) -> None:
    text = (folder.path / "grades.toml").read_text()
    (folder.path / "grades.toml").write_text(text.replace("out/gradebook", "out/{course}"))
    exporter.failing["2"] = 1
    outcome = await folder.sync()
    assert not outcome.good
    assert sorted(p.name for p in (folder.path / "out").iterdir()) == ["1.jsonl", "3.jsonl"]


@pytest.mark.parametrize(
    ("api", "export"),
    [
        ("[polling]\nfirst_interval = 30", ""),
        ("[polling]\nfirst_interval = 30\nlongest_interval = 60\njitter = 0.2\nbackoff = 1.5", ""),
        ("[polling]\nexpected = [60, 90]", ""),
        ("[polling]\nexpected = 1", "expected = [60, 90]"),
    ],
)
async def test_a_pipeline_sets_when_its_jobs_are_polled(
    folder: Folder, exporter: Exporter, api: str, export: str
) -> None:
    """The jobs end after three seconds of the client's time; without these settings they are polled before."""
    folder.write(api=api, export=export)
    assert (await folder.sync()).good
    asked = [request.path for request in exporter.asked if request.method == "GET"]
    assert sorted(asked) == ["/exports/job0", "/exports/job1", "/exports/job2"]


async def test_the_cause_of_a_failed_export_is_requested_where_the_description_says(
    folder: Folder, exporter: Exporter
) -> None:
    description = folder.path / "lms.toml"
    cause = '\n[[failure]]\npath = "/causes/{id}"\nmessage = "why"\nstep = "where"\n'
    description.write_text(description.read_text() + cause)
    exporter.failing["2"] = 1
    exporter.rules.append(
        lambda request: (
            web.json_response({"why": "The course has no term", "where": "terms"})
            if request.path.startswith("/causes/")
            else None
        )
    )
    outcome = await folder.sync()
    (failed,) = outcome.failed
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == ("TOO_BIG", "The course has no term")
    assert failed.error.failed_step == "terms"


async def test_no_more_jobs_at_once_than_the_api_runs(folder: Folder, exporter: Exporter) -> None:
    folder.write(api="concurrent = 1")
    assert (await folder.sync()).good
    begins = [i for i, r in enumerate(exporter.asked) if r.method == "POST"]
    between = [exporter.asked[i + 1].path for i in begins]
    assert between == ["/exports/job0", "/exports/job1", "/exports/job2"]


# --- exports that fail


async def test_a_failed_export_refuses_its_output_and_a_rerun_tries_it_alone(
    folder: Folder, exporter: Exporter
) -> None:
    exporter.failing["2"] = 1
    outcome = await folder.sync()
    assert [e.error.code for e in outcome.failed if e.error] == ["TOO_BIG"]
    assert outcome.outputs[0].stage == "refused" and "1 of 3" in str(outcome.outputs[0].error)
    assert not (folder.path / "out" / "gradebook.jsonl").exists()
    assert (await folder.sync()).good
    assert sorted(exporter.submitted) == ["1", "2", "2", "3"]
    assert students(folder) == ALL


async def test_retries_submit_a_failed_export_again(folder: Folder, exporter: Exporter) -> None:
    folder.write("retries = 1")
    exporter.failing["2"] = 1
    assert (await folder.sync()).good
    assert sorted(exporter.submitted) == ["1", "2", "2", "3"]


async def test_skip_publishes_without_it_and_a_rerun_adds_it(folder: Folder, exporter: Exporter) -> None:
    folder.write('failed = "skip"')
    exporter.failing["2"] = 1
    outcome = await folder.sync()
    assert not outcome.good
    assert outcome.outputs[0].missing == ("gradebook course=2",)
    assert {course for _, course in students(folder)} == {"1", "3"}
    assert (await folder.sync()).good
    assert students(folder) == ALL
    assert sorted(exporter.submitted) == ["1", "2", "2", "3"]


async def test_a_job_that_never_ends_is_left_at_its_deadline_and_found_by_the_next_run(
    folder: Folder, exporter: Exporter
) -> None:
    exporter.takes = 1e9
    folder.write("timeout = 60")
    outcome = await folder.sync(speed=300)
    assert {e.error.code for e in outcome.failed if e.error} == {"TIMED_OUT"}
    exporter.takes = 0.0
    folder.write("timeout = 86400")
    assert (await folder.sync()).good
    assert len(exporter.submitted) == 3


# --- incremental


INCREMENTAL = """
[api]
file = "lms.toml"
url = "{url}"
limit = "1000/1s"
[[exports]]
name = "gradebook"
kind = "gradebook"
input = {{ course = "{{course}}", since = "{{since}}" }}
each = {{ course = [1, 2] }}
columns = {{ course = "{{course}}" }}
failed = "skip"
since = {{ start = "2026-09-01" }}
[exports.schema]
key = ["student", "course"]
cursor = "at"
[[exports.schema.columns]]
name = "student"
[[exports.schema.columns]]
name = "at"
type = "date"
[[exports.schema.columns]]
name = "course"
[exports.output]
path = "out/gradebook.jsonl"
"""


def dated(day: int) -> bytes:
    return f"student,at\nada,2026-09-{day:02}\nnew{day},2026-09-{day:02}\n".encode()


async def test_incremental_asks_since_the_cursor_and_keeps_the_earlier_rows(
    folder: Folder, exporter: Exporter
) -> None:
    folder.write(text=INCREMENTAL)
    exporter.storage.content = lambda name: dated(5)
    await folder.sync(RunOptions(period="one"))
    exporter.storage.content = lambda name: dated(9)
    await folder.sync(RunOptions(period="two"))
    assert [job["since"] for job in exporter.jobs.values()] == ["2026-09-01"] * 2 + ["2026-09-05"] * 2
    found = {(row["student"], row["course"]): row["at"][:10] for row in folder.rows}
    assert found["ada", "1"] == "2026-09-09" and found["new5", "2"] == "2026-09-05"
    assert len(found) == 6


async def test_the_cursor_does_not_pass_an_export_that_is_missing(
    folder: Folder, exporter: Exporter
) -> None:
    folder.write(text=INCREMENTAL)
    exporter.storage.content = lambda name: dated(5)
    exporter.failing["2"] = 1
    await folder.sync(RunOptions(period="one"))
    await folder.sync(RunOptions(period="two"))
    assert [job["since"] for job in exporter.jobs.values()] == ["2026-09-01"] * 4


# --- crashes


class Gone(BaseException):
    """The process is not there any more."""


@pytest.mark.parametrize("phase", ["INITIATING", "INITIATED", "READY", "RESOLVED", "PUBLISHED"])
@pytest.mark.parametrize("keyed", [True, False])
async def test_a_run_that_is_cut_off_in_any_phase_goes_on(
    tmp_path: Path,
    exporter: Exporter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    phase: str,
    keyed: bool,
) -> None:
    """It is gone as soon as the phase of the second export is on disk."""
    monkeypatch.setenv("LMS_KEY", KEY)
    folder = Folder(tmp_path, exporter, keyed=keyed)

    def die(news: ExportUpdate) -> None:
        if news.export.name == "gradebook course=2" and news.export.phase == phase:
            raise Gone

    folder.hears = die
    with pytest.raises((Gone, BaseExceptionGroup)):
        await folder.sync()
    folder.hears = folder.news.append
    assert (await folder.sync()).good
    assert students(folder) == ALL
    # Where the API knows no keys, one that was on its way when the process went may be there twice; and that is said.
    assert len(exporter.submitted) - 3 <= (0 if keyed else caplog.text.count("is submitted again"))


async def test_what_may_have_been_sent_is_sent_again_and_that_is_said(
    tmp_path: Path, exporter: Exporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LMS_KEY", KEY)
    folder = Folder(tmp_path, exporter, keyed=False)
    task = asyncio.create_task(folder.sync())
    exporter.rules.append(lambda request: web.Response(status=503) if request.method == "POST" else None)
    while not any(r.method == "POST" for r in exporter.asked):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    exporter.rules.clear()
    assert (await folder.sync()).good
    assert "may have been submitted before" in caplog.text


async def test_jobs_of_an_earlier_process_are_asked_about_at_once(
    folder: Folder, exporter: Exporter
) -> None:
    """Nothing is on its way to the API then, so there is nothing to wait for."""
    exporter.takes = 1e9
    task = asyncio.create_task(folder.sync())
    while len(exporter.submitted) < 3 or len(exporter.asked) < 5:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    exporter.takes = 0.0
    began = asyncio.get_running_loop().time()
    assert (await folder.sync(speed=1.0)).good
    assert asyncio.get_running_loop().time() - began < 20.0
    assert len(exporter.submitted) == 3


async def test_without_resubmit_it_is_asked_what_to_do(
    tmp_path: Path, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMS_KEY", KEY)
    folder = Folder(tmp_path, exporter, keyed=False)
    folder.write("resubmit = false")

    def broken(request: web.Request) -> web.Response | None:
        if request.method == "POST":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()  # lost: the exporter makes no job, so that none appears later
        return None

    exporter.rules.append(broken)
    outcome = await folder.sync()
    assert {e.error.code for e in outcome.failed if e.error} == {"UNSURE"}
    exporter.rules.clear()
    outcome = await folder.sync()
    assert all("--resubmit" in e.error.message for e in outcome.failed if e.error)
    assert exporter.submitted == []
    assert (await folder.sync(RunOptions(resubmit=True))).good


async def test_two_processes_do_not_run_one_pipeline(folder: Folder) -> None:
    with Checkpoint(folder.path / "grades.sync"), pytest.raises(SetupError, match="another process"):
        await folder.sync()


async def test_files_that_were_lost_are_fetched_again(folder: Folder, exporter: Exporter) -> None:
    exporter.failing["3"] = 1
    await folder.sync()
    for path in (folder.path / "grades.sync" / "files").rglob("00000"):
        path.unlink()
    assert (await folder.sync()).good
    assert sorted(exporter.submitted) == ["1", "2", "3", "3"]


async def test_a_state_of_something_else_is_refused(folder: Folder) -> None:
    import sqlite3

    (folder.path / "grades.sync").mkdir()
    with sqlite3.connect(folder.path / "grades.sync" / "state.sqlite") as other:
        other.execute("CREATE TABLE theirs (a)")
    other.close()
    with pytest.raises(SetupError, match="another program"):
        await folder.sync()


# --- bad days


async def test_a_result_that_has_expired_is_asked_for_again(folder: Folder, exporter: Exporter) -> None:
    storage = exporter.storage

    def expire(request: web.Request) -> web.Response | None:
        if len(exporter.asked) == 7:
            storage.valid += 1  # the earlier credential is no longer valid
        return None

    exporter.rules.append(expire)
    original = exporter._status
    told: set[str] = set()

    def stale_first(id: str) -> web.Response:
        answer = original(id)
        if id not in told and b"sig" in (answer.body or b""):  # type: ignore[operator]
            told.add(id)
            return web.Response(
                body=re.sub(rb"sig=\d+", b"sig=-1", answer.body),  # type: ignore[arg-type]
                content_type="application/json",
            )
        return answer

    exporter._status = stale_first  # type: ignore[method-assign]
    assert (await folder.sync()).good
    assert students(folder) == ALL
    assert len(exporter.submitted) == 3


async def test_a_result_that_stays_expired_is_reported(folder: Folder, exporter: Exporter) -> None:
    exporter.extra = {"url": f"{exporter.storage.url}/1?sig=-1"}
    outcome = await folder.sync()
    assert {e.error.code for e in outcome.failed if e.error} == {"RESULT_EXPIRED"}
    assert outcome.outputs[0].stage == "refused"


@pytest.mark.parametrize("etags", [True, False])
async def test_a_stream_that_breaks_goes_on(folder: Folder, exporter: Exporter, etags: bool) -> None:
    exporter.storage.etags = etags
    exporter.storage.content = lambda name: rows(name) + b"eve,50\n" * 5000
    exporter.storage.cut.update({"1": 1, "2": 2})
    assert (await folder.sync()).good
    assert len(folder.rows) == 3 * 5002
    ranges = [value for value in exporter.storage.header("Range") if value]
    assert len(ranges) == (3 if etags else 0)


async def test_a_file_that_arrives_damaged_is_never_published(
    folder: Folder, exporter: Exporter
) -> None:
    exporter.extra = {"sha256": "0" * 64}
    outcome = await folder.sync()
    assert {e.error.code for e in outcome.failed if e.error} == {"DAMAGED"}
    exporter.extra = {}
    assert (await folder.sync()).good
    assert len(exporter.submitted) == 3


async def test_an_hour_without_an_answer_is_waited_out(
    folder: Folder, exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    """By the account's clock: one hour per second."""
    loop, begun = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    down: list[float] = []

    def outage(request: web.Request) -> web.Response | None:
        now = loop.time() - begun
        if now < 1.0:
            down.append(now)
            return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
        return None

    exporter.rules.append(outage)
    outcome = await folder.sync(speed=3600)
    assert outcome.good and students(folder) == ALL
    # One export sends requests, once per minute; the others wait.
    assert len(down) < 150
    assert "answers again" in caplog.text


async def test_an_outage_in_the_middle_costs_nothing(folder: Folder, exporter: Exporter) -> None:
    loop = asyncio.get_running_loop()
    began: list[float] = []

    def outage(request: web.Request) -> web.Response | None:
        if len(exporter.submitted) == 3 and request.method == "GET":
            began.append(loop.time())
            if loop.time() - began[0] < 1.0:
                return web.Response(status=503)
        return None

    exporter.rules.append(outage)
    assert (await folder.sync(speed=3600)).good
    assert len(exporter.submitted) == 3


async def test_who_is_down_for_longer_than_the_patience_is_left_for_later(
    folder: Folder, exporter: Exporter
) -> None:
    folder.write(api="patience = 60")
    exporter.rules.append(lambda request: web.Response(status=503))
    outcome = await folder.sync(speed=300)
    assert {e.error.code for e in outcome.failed if e.error} == {"UNREACHABLE"}
    exporter.rules.clear()
    assert (await folder.sync()).good
    assert len(exporter.submitted) == 3


@pytest.mark.parametrize("status", [403, 429])
async def test_an_hour_of_throttling_is_waited_out(
    folder: Folder, exporter: Exporter, status: int
) -> None:
    loop, begun = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    refused: list[float] = []

    def throttle(request: web.Request) -> web.Response | None:
        if loop.time() - begun < 1.0:
            refused.append(loop.time())
            return web.Response(status=status, text="403 Forbidden (Rate Limit Exceeded)")
        return None

    exporter.rules.append(throttle)
    outcome = await folder.sync(speed=3600)
    assert outcome.good and students(folder) == ALL
    assert len(refused) < 200  # of 3600 seconds


async def test_answers_swapped_between_jobs_are_not_believed(folder: Folder, exporter: Exporter) -> None:
    swapped: list[str] = []
    original = exporter._status

    def swap(id: str) -> web.Response:
        if len(swapped) < 6:
            swapped.append(id)
            return original("job0" if id != "job0" else "job1")
        return original(id)

    exporter._status = swap  # type: ignore[method-assign]
    assert (await folder.sync()).good
    assert students(folder) == ALL


async def test_the_job_of_another_export_is_not_taken(folder: Folder, exporter: Exporter) -> None:
    original = exporter._submit

    async def same(request: web.Request) -> web.Response:
        await original(request)
        return web.json_response({"id": "job0", "state": "queued"}, status=201)

    exporter._submit = same  # type: ignore[method-assign]
    outcome = await folder.sync()
    assert [e.error.code for e in outcome.failed if e.error] == ["DUPLICATE_JOB"] * 2
    words = " returned job job0, which already belongs to export gradebook "
    assert all(e.error and words in e.error.message for e in outcome.failed)
    assert outcome.outputs[0].stage == "refused"


async def test_a_value_that_is_listed_twice_is_exported_once(
    folder: Folder, exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    text = (folder.path / "grades.toml").read_text()
    (folder.path / "grades.toml").write_text(text.replace("[1, 2, 3]", "[1, 2, 3, 2]"))
    assert (await folder.sync()).good
    assert sorted(exporter.submitted) == ["1", "2", "3"]
    assert "listed twice" in caplog.text


async def test_a_token_that_expires_half_way_is_read_again(folder: Folder, exporter: Exporter) -> None:
    (folder.path / "key.txt").write_text(KEY)
    folder.write(api='key.file = "key.txt"')
    (folder.path / "lms.toml").write_text(
        (folder.path / "lms.toml")
        .read_text()
        .replace('secret.env = "LMS_KEY"', 'secret.file = "key.txt"')
    )
    folder.write()

    def expire(request: web.Request) -> web.Response | None:
        if len(exporter.submitted) == 3 and exporter.token == KEY:
            exporter.token = "lms-another-key-that-is-newer"
            (folder.path / "key.txt").write_text(exporter.token)
        return None

    exporter.rules.append(expire)
    assert (await folder.sync()).good
    assert len(exporter.submitted) == 3


async def test_a_credential_that_is_denied_halts_the_run_and_the_next_goes_on(
    folder: Folder, exporter: Exporter
) -> None:
    def expire(request: web.Request) -> web.Response | None:
        if len(exporter.submitted) == 3:
            exporter.token = "another"
        return None

    exporter.rules.append(expire)
    with pytest.raises(RunHalted, match="rejects the credential"):
        await folder.sync()
    assert not (folder.path / "out").exists()
    exporter.rules.clear()
    exporter.token = KEY
    assert (await folder.sync()).good
    assert len(exporter.submitted) == 3


async def test_a_full_disk_halts_the_run_and_the_next_goes_on(
    folder: Folder, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from bide.client.http import download

    def full(self: object, chunk: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(download._PartFile, "write", full)
        with pytest.raises(RunHalted, match="No space left"):
            await folder.sync()
    assert not list((folder.path / "grades.sync" / "files").rglob("*.part"))
    assert (await folder.sync()).good
    assert students(folder) == ALL
    assert len(exporter.submitted) == 3


async def test_a_disk_that_is_full_while_publishing_leaves_the_old_file(
    folder: Folder, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from bide.pipeline.run import publication

    await folder.sync()
    before = (folder.path / "out" / "gradebook.jsonl").read_bytes()

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(publication, "normalize", full)
        outcome = await folder.sync(RunOptions(period="next"))
    assert outcome.outputs[0].stage == "failed" and "No space" in str(outcome.outputs[0].error)
    assert (folder.path / "out" / "gradebook.jsonl").read_bytes() == before
    assert (await folder.sync(RunOptions(period="next"))).good
    assert len(exporter.submitted) == 6  # what was downloaded is used


async def test_a_checkpoint_that_cannot_be_written_halts_the_run(
    folder: Folder, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from bide.pipeline.run import checkpoint

    def full(*args: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_update", full)
        with pytest.raises(SetupError, match="disk is full"):
            await folder.sync()
    assert (await folder.sync()).good
    assert len(exporter.submitted) == 3
