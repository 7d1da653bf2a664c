"""`App` in a user's own process: mounted, submitted to without HTTP, run inline, imported lightly."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from bide import AsyncClient, JobError
from bide.core.errors import InvalidInput, SetupError
from bide.core.jobs.record import Job, Status
from tests.apps.handlers import app
from tests.integration.asgi import call


class QuietServer(uvicorn.Server):
    """Leaves the test runner's signals alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def serving(outer: Starlette) -> AsyncIterator[str]:
    server = QuietServer(uvicorn.Config(outer, port=0, log_config=None))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize("with_lifespan", [True, False])
async def test_mounted_in_another_application(tmp_path: Path, with_lifespan: bool) -> None:
    jobs = app.asgi(data=tmp_path)

    async def submit(request: Request) -> JSONResponse:
        job = await app.submit_async("add", {"a": 40, "b": 2})
        return JSONResponse({"id": job.job_id})

    outer = Starlette(
        routes=[Route("/submit", submit), Mount("/work", app=jobs)],
        lifespan=jobs.lifespan if with_lifespan else None,
    )
    async with serving(outer) as url, AsyncClient(url + "/work") as client:
        handle = await client.submit("add", {"a": 1, "b": 2})
        assert handle.latest is not None
        assert handle.latest.links["self"] == f"/work/jobs/{handle.id}"
        assert await handle.result(timeout=20) == 3
        import aiohttp

        async with aiohttp.ClientSession() as session, session.get(url + "/submit") as answer:
            job_id = (await answer.json())["id"]
        assert await client.job(job_id).result(timeout=20) == 42
        from_thread = await asyncio.to_thread(app.submit, "add", {"a": 5})
        assert from_thread.trace_id is not None and len(from_thread.trace_id) == 32
        assert await client.job(from_thread.job_id).result(timeout=20) == 6
        with pytest.raises(InvalidInput, match="not a public address"):
            await app.submit_async("add", {"a": 5}, webhook="http://127.0.0.1/")
        with pytest.raises(InvalidInput, match="webhook/events/0"):
            await app.submit_async("add", {"a": 5}, webhook={"url": "http://a", "events": ["queue"]})
        theirs = await app.submit_async("add", {"a": 5}, tenant="acme")
        assert jobs.service is not None
        (stored,) = await jobs.service.store.get([theirs.job_id])
        assert isinstance(stored, Job) and stored.tenant == "acme"
        assert await client.statuses([theirs.job_id]) == {}
        with pytest.raises(ValueError, match="tenant"):
            await app.submit_async("add", {"a": 5}, tenant="a/b")
        with pytest.raises(InvalidInput, match="NUL"):
            await app.submit_async("add", {"a": 5}, idempotency_key="a\0b")
        with pytest.raises(RuntimeError, match="submit_async"):
            app.submit("add", {"a": 5})
    if not with_lifespan:
        assert jobs.service is not None
        await jobs.service.stop(0)


async def test_a_mounted_service_that_stops_answers_what_has_come_and_refuses_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The outer application may still be sent requests while, and after, its lifespan ends."""
    jobs = app.asgi(data=tmp_path)
    accepted: list[str] = []
    statuses: Counter[int] = Counter()

    async def calls() -> None:
        while not statuses[503]:
            reply = await call(jobs, "POST", "/jobs", json={"kind": "add", "input": {"a": 1}})
            statuses[reply.status] += 1
            if reply.status == 202:
                accepted.append(reply.json()["jobId"])

    async with jobs.lifespan():
        later = {"kind": "add", "input": {"a": 1}, "runAt": "2999-01-01T00:00:00Z"}
        waiting = (await call(jobs, "POST", "/jobs", json=later)).json()["jobId"]
        held = asyncio.create_task(call(jobs, "GET", f"/jobs/{waiting}", headers={"prefer": "wait=50"}))
        callers = [asyncio.create_task(calls()) for _ in range(4)]
        while len(accepted) < 40:
            await asyncio.sleep(0.01)
    await asyncio.gather(*callers)
    assert (await held).status == 200
    assert set(statuses) == {202, 503}
    late = await call(jobs, "GET", f"/jobs/{waiting}")
    assert (late.status, late.json()["code"]) == (503, "unavailable")
    assert late.headers["retry-after"] and jobs.service is None
    assert not [record for record in caplog.records if record.exc_info]
    async with jobs.lifespan():  # it can be started again
        for job_id in accepted:
            assert (await call(jobs, "GET", f"/jobs/{job_id}")).status == 200


async def test_only_its_owner_can_read_the_data_folder(tmp_path: Path) -> None:
    jobs = app.asgi(data=tmp_path / "data")
    before = os.umask(0)
    try:
        async with jobs.lifespan():
            sent = await call(jobs, "POST", "/jobs", json={"kind": "files"})
            await call(jobs, "POST", "/uploads?name=a.txt", body=b"hello")
            tus = {"tus-resumable": "1.0.0", "upload-length": "10"}
            place = (await call(jobs, "POST", "/files", headers=tus)).headers["location"]
            tus |= {"upload-offset": "0", "content-type": "application/offset+octet-stream"}
            await call(jobs, "PATCH", place, body=b"01234", headers=tus)
            path = f"/jobs/{sent.json()['jobId']}"
            while (await call(jobs, "GET", path)).json()["status"] != "DONE":
                await asyncio.sleep(0.01)
            found = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
            open_to_others = {p.name for p in found if p.stat().st_mode & 0o077}
    finally:
        os.umask(before)
    names = {p.name for p in found}
    assert {"bide.db", "bide.db-wal", "lock", "replica", "hello.txt", "content"} <= names
    assert open_to_others <= {"scratch"}, "which a handler has made in ctx.folder, itself closed"


def test_submitting_without_a_service_says_what_to_do() -> None:
    from bide import App

    with pytest.raises(SetupError, match=r"bide\.Client"):
        App().submit("x")


def test_run_inline(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert app.run_inline("add", {"a": 2}).result == 3
    assert app.run_inline("nap", {"seconds": 0}).result == "rested"
    job = app.run_inline("family", {"log": str(log)})
    assert (job.status, job.result, job.steps) == (Status.DONE, [0, 10, 20], {"before": None})
    assert log.read_text().split() == ["parent", "before", "parent"]
    partial = app.run_inline("family", {"log": str(log), "bad": 2, "partial": True})
    assert (partial.status, partial.result) == (Status.PARTIAL_SUCCESS, [0, 10, None])
    assert partial.errors[0]["code"] == "ODD"


def test_run_inline_lets_failures_through() -> None:
    with pytest.raises(JobError, match="BAD_PAGE"):
        app.run_inline("refuses")
    with pytest.raises(InvalidInput) as refused:
        app.run_inline("add", {"a": "x", "c": 1})
    assert {e["pointer"] for e in refused.value.errors or ()} == {"/input/a", "/input/c"}


def test_run_inline_keeps_files(tmp_path: Path) -> None:
    job = app.run_inline("files", folder=tmp_path)
    assert job.files["hello.txt"].read_bytes() == b"hello"
    assert job.result["text"] == "hello.txt: hello"
    assert job.result["copied"] == "hello"


def test_run_inline_leaves_nothing_in_the_temporary_folder(tmp_path: Path) -> None:
    program = """
        from tests.apps.handlers import app
        files = app.run_inline("files").files  # they outlive the job that had them
        assert all(path.stat().st_size for path in files.values()) and files
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_run_inline_takes_a_path_for_a_file(tmp_path: Path) -> None:
    path = tmp_path / "five.txt"
    path.write_text("12345")
    assert app.run_inline("reads", {"source": path}).result == "five.txt: 12345"


def loaded(module: str, *heavy: str) -> str:
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & {set(heavy)}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_bide_loads_no_server() -> None:
    heavy = (
        "pydantic",
        "starlette",
        "uvicorn",
        "prometheus_client",
        "sqlite3",
        "aiohttp",
        "rich",
        "click",
    )
    assert loaded("bide", *heavy) == ""


def test_a_service_starts_without_what_few_requests_need() -> None:
    assert loaded("bide.service.serve", "prometheus_client", "importlib.metadata", "aiobotocore") == ""


def test_the_client_needs_no_server_package() -> None:
    code = (
        "import sys\n"
        "for name in ('pydantic', 'starlette', 'uvicorn', 'prometheus_client', 'uvloop', 'httptools'):\n"
        "    sys.modules[name] = None\n"
        "from bide import Client, AsyncClient, JobFailed\n"
        "import bide.cli.wait, bide.cli.submit, bide.cli.jobs, bide.cli.queue\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
