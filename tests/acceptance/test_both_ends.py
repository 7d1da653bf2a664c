"""`bide serve` as a process, and the client and the command line against it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import AsyncClient, Client, JobFailed
from bide.core.errors import ServiceError
from bide.core.wire.http import JobStatus
from tests.servers.warm import warm
from tests.terminal import Terminal

APP = """
    import time
    from bide import App, Context, JobError

    app = App()

    @app.job(queue="video")
    def count(ctx: Context, to: int = 10, fail: bool = False) -> dict:
        for n in range(to):
            ctx.progress(n, to, unit="numbers", message=f"at {n}")
            time.sleep(0.05)
        if fail:
            raise JobError("TIRED", "no more numbers", retryable=False)
        with open(f"{ctx.job_id}.txt", "w") as file:
            file.write("counted")
        ctx.output("said.txt", f"{ctx.job_id}.txt")
        return {"counted": to}

    @app.job()
    def large(size: int) -> str:
        return "x" * size

    @app.job()
    def nothing() -> None:
        pass
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "counting.py").write_text(textwrap.dedent(APP))
    command = "from bide.cli import main; main()"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            command,
            "serve",
            "counting:app",
            "--port",
            "0",
            "--drain",
            "1",
            "--workers",
            "2",
        ],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
        assert found is not None
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


async def test_a_job_is_followed_to_its_result_with_few_requests(url: str, tmp_path: Path) -> None:
    seen: list[JobStatus] = []
    async with AsyncClient(url) as client:
        job = await client.submit("count", {"to": 20}, labels={"team": "ops"})
        assert await job.result(timeout=30, on_change=seen.append) == {"counted": 20}
        assert client.requests < 12
        assert (await job.download("said.txt", tmp_path)).read_text() == "counted"
        assert [one.job_id for one in await client.list(label=("team", "ops"))] == [job.id]
    assert seen[-1].status == "DONE"
    percents = [
        one.progress.percent for one in seen if one.progress and one.progress.percent is not None
    ]
    assert len(set(percents)) > 2 and percents == sorted(percents)


async def test_without_progress_a_wait_is_one_request(url: str) -> None:
    async with AsyncClient(url) as client:
        job = await client.submit("count", {"to": 5})
        await job.result(timeout=30)
        assert client.requests == 2  # the submission and one long poll


async def test_large_and_missing_results(url: str) -> None:
    async with AsyncClient(url) as client:
        large, nothing = await client.submit("large", {"size": 200_000}), await client.submit("nothing")
        assert await large.result(timeout=30) == "x" * 200_000
        assert await nothing.result(timeout=30) is None


async def test_a_batch_has_handles_and_refusals(url: str) -> None:
    async with AsyncClient(url) as client:
        outcomes = await client.submit_many(
            [
                {"kind": "count", "input": {"to": 1}},
                {"kind": "unheard-of"},
                {"kind": "count", "input": {"to": "x"}},
            ]
        )
        good, unknown, wrong = outcomes
        assert not isinstance(good, ServiceError)
        assert await good.result(timeout=30) == {"counted": 1}
    assert isinstance(unknown, ServiceError) and unknown.code == "unknown-kind"
    assert isinstance(wrong, ServiceError) and "/input/to" in str(wrong)


def test_many_are_waited_for_without_await(url: str) -> None:
    with Client(url) as client:
        jobs = [client.submit("count", {"to": 2, "fail": n == 3}) for n in range(6)]
        ended = list(client.as_completed(jobs, timeout=30))
        assert {job.id for job in ended} == {job.id for job in jobs}
        with pytest.raises(JobFailed, match="TIRED: no more numbers"):
            jobs[3].result()
        assert jobs[0].result() == {"counted": 2}


def bide(url: str, *args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm().program, *args],
        env={**os.environ, "BIDE_URL": url},
        input=input,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_line_from_submit_to_retry(url: str, tmp_path: Path) -> None:
    submitted = bide(url, "submit", "count", "--input", '{"to": 3}')
    waited = bide(url, "wait", "-", "--json", "--out", str(tmp_path), input=submitted.stdout)
    assert waited.returncode == 0, waited.stderr
    line = json.loads(waited.stdout)
    assert (line["jobId"], line["status"], line["result"]) == (
        submitted.stdout.strip(),
        "DONE",
        {"counted": 3},
    )
    assert (tmp_path / line["jobId"] / "said.txt").read_text() == "counted"

    refused = bide(url, "submit", "count", "--input", '{"too": 3}')
    assert refused.returncode == 1
    assert "/input/too" in refused.stderr

    failed = bide(url, "submit", "count", "-i", '{"to": 1, "fail": true}', "--wait")
    assert failed.returncode == 1
    assert "TIRED: no more numbers" in failed.stderr
    again = bide(url, "retry", "--kind", "count", "--status", "ERROR", "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout.splitlines()[0])["status"] == "PENDING"


def test_a_paused_queue_holds_its_jobs_until_they_are_cancelled(url: str) -> None:
    assert bide(url, "queue", "pause", "video").returncode == 0
    try:
        job_id = bide(url, "submit", "count").stdout.strip()
        queues = [json.loads(line) for line in bide(url, "queue", "list", "--json").stdout.splitlines()]
        assert {queue["name"]: queue["paused"] for queue in queues}["video"] is True
        assert bide(url, "wait", job_id, "--timeout", "0.3").returncode == 3
        assert bide(url, "cancel", job_id).stdout == f"{job_id} CANCELLED\n"
        assert bide(url, "wait", job_id).returncode == 1
    finally:
        assert bide(url, "queue", "resume", "video").returncode == 0


def test_commands_by_a_query_act_on_all_jobs_that_match(url: str, tmp_path: Path) -> None:
    assert bide(url, "queue", "pause", "video").returncode == 0
    try:
        with Client(url) as client:
            jobs = client.submit_many([{"kind": "count", "labels": {"team": "bulk"}}] * 3)
            other = client.submit("count", labels={"team": "dev"})
            ids = [job.id for job in jobs if not isinstance(job, ServiceError)]
            query = ("--q", "label.team:bulk")
            assert bide(url, "cancel", *query, "--dry-run").stdout == "3 jobs match\n"
            done = bide(url, "cancel", *query)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith("cancel: 3 jobs changed, 0 refused, 0 skipped (")
            assert client.bulk_count("retry", label=("team", "bulk"), status="CANCELLED") == 3
            again = bide(url, "retry", *query, "--kind", "count", "--json")
            shown = json.loads(again.stdout)
            assert (shown["kind"], shown["status"], shown["result"]["changed"]) == (
                "bide.bulk",
                "DONE",
                3,
            )
            assert {job.status for job in client.statuses(ids).values()} == {"PENDING"}
            refused = bide(url, "delete", *query)
            assert refused.returncode == 2
            assert "would delete 3 jobs: give --yes" in refused.stderr
            with Terminal(tmp_path, "delete", *query, "--url", url) as terminal:
                terminal.until("Delete 3 jobs and their files?")
                terminal.type("n\n")
                assert terminal.wait() == 1
            assert len(client.statuses(ids)) == 3
            done = bide(url, "delete", *query, "--yes")
            assert done.stdout.startswith("delete: 3 jobs changed")
            assert client.statuses(ids) == {}
            raised = client.bulk("priority", priority=5, q="label.team:dev").result(timeout=30)
            assert (raised["action"], raised["changed"]) == ("priority", 1)
            assert other.status().priority == 5
            with pytest.raises(ServiceError, match="not-confirmed"):
                client.bulk("delete", q="label.team:dev", confirm=2)
            assert bide(url, "delete", other.id).stdout == f"{other.id} deleted\n"
    finally:
        assert bide(url, "queue", "resume", "video").returncode == 0
