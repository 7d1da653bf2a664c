"""What a user sees in a terminal: bars and lines, interruptions and how to resume."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.acceptance.vendors import KEY, PATIENCE, Shop, start
from tests.servers import warm
from tests.terminal import BIDE, Terminal
from tests.unit.fake_service import FakeService, Reply, job, job_id, problem, says
from tests.waiting import until

CTRL_C = "\x03"
SHOP = """
name = "shop"
url = "{url}"
[auth]
kind = "header"
header = "x-api-key"
secret.env = "SYNC_API_KEY"
[ask]
path = "/v2/generate/{{id}}"
[read]
status = "status"
progress = "progress"
live = ["PENDING", "PROCESSING"]
done = ["COMPLETED"]
failed = ["FAILED"]
"""
ENV = {"SYNC_API_KEY": KEY}


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running


def run(
    folder: Path, *args: str, env: dict[str, str] | None = None, program: Sequence[str] = BIDE
) -> subprocess.CompletedProcess[str]:
    """`bide` without a terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    env = {**kept, **ENV, **(env or {})}
    return warm.run([*program, *args], cwd=folder, env=env, timeout=PATIENCE)


def guarded(document: dict[str, Any]) -> Reply:
    """The answer to a request with the key."""

    async def reply(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.Response(status=401)
        return web.json_response(document)

    return reply


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command that bide has printed, as a user does who copies it."""
    words = shlex.split(command)
    assert words[0] == "bide"
    return run(folder, *words[1:])


def home(folder: Path) -> dict[str, str]:
    """The user's confirmations of descriptions are in this folder."""
    return {**ENV, "XDG_CONFIG_HOME": str(folder / "config")}


# --- bars and lines


@pytest.mark.parametrize("how", [(), ("--json",), ("--exec", 'echo "ran $BIDE_JOB_ID"; echo more >&2')])
def test_lines_and_bars_do_not_overwrite_each_other(tmp_path: Path, how: tuple[str, ...]) -> None:
    with Shop(15, "{ uniform = [0.2, 1.5] }") as shop:
        args = ("wait", *shop.jobs, "--api", "sync.so", "--url", shop.url, "--limit", "50/1s", *how)
        with Terminal(tmp_path, *args, env=ENV, columns=300) as terminal:
            assert terminal.wait() == 0, terminal.lines()
            shown, moments = terminal.lines(), terminal.snapshots
    assert any("of 15 ended" in line for screen in moments for line in screen)
    for screen in moments:
        for line in screen:
            assert not ("ended" in line and ("DONE" in line or "jobId" in line)), line
    for line in shown:  # the bars have disappeared: the lines have the results
        assert line.startswith(("job-", "{", "bide:", "ran job-", "more")), line
    if how == ("--json",):
        assert sorted(json.loads(line)["jobId"] for line in shown if line[0] == "{") == sorted(shop.jobs)
    else:
        ended = [line.split()[0] for line in shown if line.startswith("job-") and " DONE " in line]
        assert sorted(ended) == sorted(shop.jobs)
    if "--exec" in how:
        assert sorted(line for line in shown if line.startswith("ran")) == sorted(
            f"ran {id}" for id in shop.jobs
        )
        assert shown.count("more") == 15
    assert re.fullmatch(r"bide: 15 done, 0 failed, \d+ requests, 0 refused", shown[-1])


def test_results_in_a_pipe_have_no_bars_and_the_bars_no_results(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with Shop(3, "{ fixed = 0.5 }") as shop:
        args = ("wait", *shop.jobs, "--api", "sync.so", "--url", shop.url)
        with Terminal(tmp_path, *args, env=ENV, stdout=writer) as terminal:
            os.close(writer)
            assert terminal.wait() == 0
            shown = terminal.lines()
    with os.fdopen(reader) as pipe:
        printed = pipe.read().splitlines()
    assert sorted(line.split()[0] for line in printed) == sorted(shop.jobs)
    assert all(' DONE "http://' in line for line in printed)
    assert not any(' DONE "http://' in line for line in shown)


EVIL = "\x1b]0;evil\x07\x9b2J gone"  # the title of the window, then an empty screen
SHOWN = "?]0;evil??2J gone"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("wait", job_id(1)), f'{job_id(1)} DONE "\\u001b]0;evil\\u0007?2J gone"'),
        (("wait", job_id(1), "--json"), '"result":"\\u001b]0;evil\\u0007\\u009b2J gone"'),
        (("wait", job_id(3)), f"{job_id(3)} ERROR BAD: {SHOWN}"),
        (("submit", "film", "--wait"), '"\\u001b]0;evil\\u0007\\u009b2J gone"'),
        (("submit", "film", "--wait", "--json"), '"result":"\\u001b]0;evil\\u0007\\u009b2J gone"'),
        (("status", job_id(2)), f" progress  {SHOWN}"),
        (("status", job_id(2), "--json"), '"message":"\\u001b]0;evil\\u0007\\u009b2J gone"'),
        (("list",), SHOWN),
        (("status", job_id(9)), f"bide: 422 bad: {SHOWN}"),
        (("cancel", job_id(9)), f"bide: {job_id(9)}: 422 bad: {SHOWN}"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_answer_cannot_move_the_cursor(
    tmp_path: Path, service: FakeService, args: tuple[str, ...], line: str
) -> None:
    running = job(2, "PROCESSING", progress={"message": EVIL}, kind=EVIL)
    error = {"code": "BAD", "message": EVIL, "retryable": False}
    service.on("POST", "/jobs", says(job(1, "PROCESSING", progress={"message": EVIL}, kind=EVIL)))
    service.script(1, says(job(1, result=EVIL)))
    service.script(2, says(running))
    service.script(3, says(job(3, "ERROR", error=error)))
    service.script(9, problem(422, "bad", EVIL))
    service.on("POST", f"/jobs/{job_id(9)}/cancel", problem(422, "bad", EVIL))
    service.on("GET", "/jobs", says({"jobs": [running], "next": None}))
    with Terminal(tmp_path, *args, "--url", service.url, columns=300) as terminal:
        terminal.wait()
        assert any(line in shown for shown in terminal.lines()), terminal.lines()
        assert terminal.title == ""


def test_a_report_cannot_move_the_cursor(tmp_path: Path, service: FakeService) -> None:
    """The bars show the kind and the message of a running job."""
    service.script(1, says(job(1, "PROCESSING", progress={"message": EVIL}, kind=EVIL)))
    with Terminal(tmp_path, "wait", job_id(1), "--url", service.url, columns=300) as terminal:
        until(lambda: any(line.count(SHOWN) == 2 for line in terminal.lines()), "both are shown")
        assert terminal.title == ""
        terminal.type(CTRL_C)
        terminal.wait()


# --- Ctrl-C


def hint(lines: list[str], start: str = "resume with: ") -> str:
    (found,) = [line for line in lines if start in line]
    return found.partition(start)[2].partition("  (")[0]


def test_the_command_after_ctrl_c_resumes_exactly(tmp_path: Path) -> None:
    with Shop(3, "{ fixed = 3600 }") as shop:
        (tmp_path / "own").mkdir()
        (tmp_path / "own/shop.toml").write_text(SHOP.format(url=shop.url))
        given = (
            "--api",
            "own/shop.toml",
            "--out",
            "films",
            "--limit",
            "20/1s",
            "--price",
            "2",
            "--trust",
        )
        more = ("--expect", "5", "--size", "large", "--timeout", "3600", "--ledger", "films.ledger")
        with Terminal(
            tmp_path, "wait", *shop.jobs, *given, *more, "--json", env=home(tmp_path), columns=400
        ) as terminal:
            until(lambda: len(shop.asked) >= 3, "every job was asked about")
            terminal.type(CTRL_C)
            assert terminal.wait() == 130
            shown = terminal.lines()
        command = hint(shown)
        assert command == "bide wait --ledger films.ledger --json"
        assert re.fullmatch(r"bide: 0 done, 0 failed, 3 not ended, \d+ requests, 0 refused", shown[-3])
        assert shown[-1] == "bide: interrupted"
        for task in shop.jobs.values():
            task.ends = 0.0
        done = run(tmp_path, *shlex.split(command)[1:], env=home(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(line)["jobId"] for line in done.stdout.splitlines()) == sorted(shop.jobs)
    assert sorted(file.name for file in (tmp_path / "films").glob("*.json")) == sorted(
        f"{id}.json" for id in shop.jobs
    )
    adds = f"--api {tmp_path}/own/shop.toml --out {tmp_path}/films --limit 20/1s --price 2 --expect 5"
    assert f"bide: settings from the ledger for shop: {adds} --size large --timeout 3600" in done.stderr


def test_a_printed_command_masks_secrets_and_the_ledger_has_none(tmp_path: Path) -> None:
    secrets = ("sk-secret-key", "hush-hush", "exec-secret")
    with Shop(1, "{ fixed = 3600 }") as shop:
        shop._key = secrets[0]
        given = (
            "--api",
            "sync.so",
            "--url",
            shop.url,
            "--key",
            secrets[0],
            "--header",
            "x-team: hush-hush",
        )
        command = """curl -u admin:exec-secret -d '{"password": "exec-secret"}' https://example.org"""
        more = ("--ledger", "films.ledger", "--exec", command)
        with Terminal(
            tmp_path, "wait", *shop.jobs, *given, *more, env=home(tmp_path), columns=400
        ) as terminal:
            until(lambda: bool(shop.asked), "the job was asked about")
            terminal.type(CTRL_C)
            assert terminal.wait() == 130
            shown = terminal.lines()
    command = "bide wait --ledger films.ledger --header 'x-team: ***' --key '***' --exec '***'"
    assert hint(shown) == command
    assert any("replace *** by what you gave" in line for line in shown)
    written = b"".join(file.read_bytes() for file in tmp_path.glob("films.ledger*"))
    for secret in secrets:
        assert secret not in "\n".join(shown)
        assert secret.encode() not in written
    assert b"curl" not in written


def test_without_a_ledger_ctrl_c_prints_a_command_for_the_jobs_that_have_not_ended(
    tmp_path: Path,
) -> None:
    with Shop(4, "{ fixed = 3600 }") as shop:
        ended, *others = shop.jobs
        shop.jobs[ended].ends = 0.0
        (tmp_path / "ids.txt").write_text("\n".join(others[1:]))
        given = f"--api sync.so --timeout 3600 --limit 20/1s --expect 15-60 --url {shop.url}"
        args = ("wait", ended, others[0], "@ids.txt", *given.split())
        with Terminal(tmp_path, *args, env=ENV, columns=400) as terminal:
            terminal.until(f"{ended} DONE")
            terminal.type(CTRL_C)
            assert terminal.wait() == 130
            shown = terminal.lines()
        command = hint(shown, "the jobs are not affected. With --ledger FILE, a short command resumes. ")
        command = command.removeprefix("Wait for them again with: ")
        assert command == f"bide wait {' '.join(others)} {given}"
        for task in shop.jobs.values():
            task.ends = 0.0
        done = shell(tmp_path, command)
    assert done.returncode == 0, done.stderr
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == sorted(others)


def test_many_jobs_from_stdin_are_written_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command would submit the jobs again: `bide submit … | bide wait -`."""
    with Shop(20, "{ fixed = 3600 }") as shop:
        given = ("--api", "sync.so", "--limit", "50/1s", "--url", shop.url)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        process = start(tmp_path, "-", *given, stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write("\n".join(json.dumps({"jobId": id}) for id in shop.jobs))
        process.stdin.close()
        until(lambda: bool(shop.asked), "a job was asked about")
        process.send_signal(signal.SIGINT)
        process.stdin = None  # closed
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        command = hint(errors.splitlines(), "Wait for them again with: ")
        for task in shop.jobs.values():
            task.ends = 0.0
        done = shell(tmp_path, command)
    (file,) = tmp_path.glob("bide-jobs-*.txt")
    assert command == f"bide wait @{file} {' '.join(given)}"
    assert file.stat().st_mode & 0o777 == 0o600
    assert done.returncode == 0, done.stderr
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == sorted(shop.jobs)


@pytest.mark.parametrize("by", ["BIDE_KEY", "BIDE_KEY_FILE"])
def test_the_key_of_a_variable_goes_to_the_service_that_was_typed(
    tmp_path: Path, service: FakeService, by: str
) -> None:
    service.script(1, guarded(job(1, "PROCESSING")))
    (tmp_path / "key").write_text(KEY)
    env = {**home(tmp_path), by: KEY if by == "BIDE_KEY" else "key"}
    first = ("wait", job_id(1), "--url", service.url, "--ledger", "l")
    assert run(tmp_path, *first, "--timeout", "0", env=env).returncode == 3
    service.script(1, guarded(job(1, result=7)))
    done = run(tmp_path, "wait", "--ledger", "l", "--timeout", "60", env=env)
    assert (done.returncode, done.stdout) == (0, f"{job_id(1)} DONE 7\n"), done.stderr


@pytest.mark.parametrize("named", [("--url",), ("--trust",)])
def test_the_key_of_a_variable_goes_to_the_address_of_a_jobs_url_only_if_it_is_named(
    tmp_path: Path, service: FakeService, named: tuple[str, ...]
) -> None:
    service.script(1, guarded(job(1, result=7)))
    env, ledger = {**home(tmp_path), "BIDE_KEY": KEY}, ("--ledger", "l")
    assert run(tmp_path, "wait", f"{service.url}/jobs/{job_id(1)}", *ledger, env=env).returncode == 1
    assert run(tmp_path, "wait", *ledger, env=env).returncode == 1
    assert set(service.header("Authorization")) == {None}
    more = (*named, service.url) if named == ("--url",) else named
    assert run(tmp_path, "wait", *ledger, *more, "--timeout", "0", env=env).returncode == 3
    done = run(tmp_path, "wait", *ledger, "--timeout", "60", env=env)
    assert (done.returncode, done.stdout) == (0, f"{job_id(1)} DONE 7\n"), done.stderr


def test_a_kill_leaves_no_job_without_its_settings(tmp_path: Path) -> None:
    """The process is killed right after the jobs are in the ledger."""
    killed = (
        "import os, signal; from bide.client.client import AsyncClient; from bide.cli import main\n"
        "resume = AsyncClient.resume\n"
        "async def killed(*args):\n    await resume(*args); os.kill(os.getpid(), signal.SIGKILL)\n"
        "AsyncClient.resume = killed; main()"
    )
    with Shop(1, "{ fixed = 0.01 }") as shop:
        (tmp_path / "shop.toml").write_text(SHOP.format(url=shop.url))
        given = ("--api", "shop.toml", "--trust", "--ledger", "l")
        done = run(
            tmp_path, "wait", *shop.jobs, *given, env=home(tmp_path), program=(BIDE[0], "-c", killed)
        )
        assert done.returncode == -signal.SIGKILL
        done = run(tmp_path, "wait", "--ledger", "l", env=home(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"settings from the ledger for shop: --api {tmp_path}/shop.toml" in done.stderr


def test_settings_on_the_command_line_replace_those_of_the_ledger(tmp_path: Path) -> None:
    with Shop(2, "{ fixed = 3600 }") as shop:
        first, second = shop.jobs
        common = ("--api", "sync.so", "--url", shop.url, "--ledger", "l")
        assert run(tmp_path, "wait", first, *common, "--out", "a", "--timeout", "0").returncode == 3
        done = run(tmp_path, "wait", second, *common, "--out", "b", "--timeout", "0.5")
        assert done.returncode == 3
        for task in shop.jobs.values():
            task.ends = 0.0
        done = run(tmp_path, "wait", "--ledger", "l", "--timeout", "60")
    assert done.returncode == 0, done.stderr
    assert f"--out {tmp_path}/b" in done.stderr
    assert "--timeout" not in done.stderr
    assert len(list((tmp_path / "b").glob("*.json"))) == 2


# --- a ledger that is not there


@pytest.mark.parametrize("others", [(), ("films.ledger",)])
def test_a_missing_ledger_without_jobs_is_a_usage_error(tmp_path: Path, others: tuple[str, ...]) -> None:
    for name in others:
        (tmp_path / name).touch()
    done = run(tmp_path, "wait", "--ledger", "flims.ledger")
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no ledger flims.ledger." in done.stderr
    assert ("Did you mean films.ledger?" in done.stderr) == bool(others)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(others)


def test_a_ledger_without_jobs_is_one_too(tmp_path: Path) -> None:
    (tmp_path / "l").touch()
    done = run(tmp_path, "wait", "--ledger", "l")
    assert done.returncode == 2
    assert "The ledger l has no jobs" in done.stderr


@pytest.mark.parametrize("source", ["@empty.txt", "-"])
@pytest.mark.parametrize("ledger", [(), ("--ledger", "typo.ledger")])
def test_an_empty_list_of_jobs_is_one_too(tmp_path: Path, source: str, ledger: tuple[str, ...]) -> None:
    (tmp_path / "empty.txt").write_text("# no job\n")
    done = run(tmp_path, "wait", source, *ledger)
    assert (done.returncode, done.stdout) == (2, "")
    said = "There is no ledger typo.ledger." if ledger else f"no jobs in {source}: give ids"
    assert said in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["empty.txt"]


def test_an_empty_list_of_jobs_adds_nothing_to_those_of_a_ledger(tmp_path: Path) -> None:
    with Shop(1, "{ fixed = 0.01 }") as shop:
        given = ("--api", "sync.so", "--url", shop.url, "--ledger", "l", "--timeout", "0")
        run(tmp_path, "wait", *shop.jobs, *given)
        done = run(tmp_path, "wait", "-", *given[:-1], "60")
    assert (done.returncode, done.stdout.split()[:2]) == (0, [*shop.jobs, "DONE"]), done.stderr


# --- bide submit --wait


def test_ctrl_c_in_submit_says_how_to_wait_for_the_job_again(
    tmp_path: Path, service: FakeService
) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    service.on("GET", "/queues", says({"queues": []}))
    service.script(1, says(job(1, "PROCESSING")))
    args = ("submit", "transcode", "--wait", "--url", service.url, "--key", "not-shown")
    with Terminal(tmp_path, *args) as terminal:
        terminal.until("PROCESSING")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
        shown = terminal.lines()
    assert "not-shown" not in "\n".join(shown)
    assert any(f"job {job_id(1)} is still running." in line for line in shown)
    command = hint(shown, "Wait for it again with: ")
    assert command == f"bide wait {job_id(1)} --url {service.url} --key '***'"
    service.script(1, says(job(1, result=7)))
    done = shell(tmp_path, command)
    assert (done.returncode, done.stdout) == (0, f"{job_id(1)} DONE 7\n")


def test_the_result_of_submit_is_below_its_notes_and_the_bar_is_gone(
    tmp_path: Path, service: FakeService
) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    service.on("GET", "/queues", says({"queues": [{"name": "video", "served": False}]}))
    service.script(1, says(job(1, "PENDING"), etag='"1"'))
    with Terminal(tmp_path, "submit", "transcode", "--wait", "-v", "--url", service.url) as terminal:
        terminal.until("bide: No worker serves queue video.")
        running = job(1, "PROCESSING", progress={"percent": 41.5, "message": "Transcoding"})
        service.script(1, says(running, etag='"2"'))
        (bar,) = [line for line in terminal.until("Transcoding") if "Transcoding" in line]
        service.script(1, says(job(1, result={"url": "x"})))
        assert terminal.wait() == 0
        shown, moments = terminal.lines(), terminal.snapshots
    assert re.fullmatch(r". transcode 000001 ━+[╸╺]?━+ +42% 0:00:\d\d Transcoding", bar), bar
    assert [re.sub(job_id(1), "ID", line) for line in shown] == [
        "bide: No worker serves queue video. The job waits until a worker of that queue starts.",
        "bide: job ID is PROCESSING",
        "bide: job ID is DONE",
        "{",
        '  "url": "x"',
        "}",
    ]
    lines = {line for screen in moments for line in screen}
    assert all(line.startswith("bide: ") for line in lines if "bide:" in line and "━" not in line)
    assert not any("bide:" in line for line in lines if "━" in line)


def test_a_status_url_with_a_secret_is_not_shown(tmp_path: Path, service: FakeService) -> None:
    (tmp_path / "signed.toml").write_text(
        'name = "signed"\n[submit]\npath = "/renders"\nstatus_url = "status"\n[ask]\npath = "/renders/{id}"\n'
        '[read]\nstatus = "state"\nlive = ["running"]\ndone = ["ready"]\n'
    )
    url = f"{service.url}/renders/a"
    service.on("POST", "/renders", says({"status": f"{url}?sig=hush-hush"}))
    service.on("GET", "/renders/a", says({"state": "running"}))
    args = ("submit", "film", "--api", "signed.toml", "--url", service.url, "--wait")
    with Terminal(tmp_path, *args, env={"TMPDIR": str(tmp_path)}, columns=400) as terminal:
        until(lambda: len(service.asked) >= 2, "the job was asked about")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
        shown = terminal.lines()
    assert "hush-hush" not in "\n".join(shown)
    assert any(f"job {url} is still running." in line for line in shown)
    service.on("GET", "/renders/a", says({"state": "ready"}))
    done = shell(tmp_path, hint(shown, "Wait for it again with: "))
    assert done.returncode == 0, done.stderr
    assert service.asked[-1].query == {"sig": "hush-hush"}


def test_submit_says_when_no_worker_serves_the_queue(tmp_path: Path, service: FakeService) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING", queue="video")))
    queues = [{"name": "text", "served": False}, {"name": "video", "served": False, "paused": False}]
    service.on("GET", "/queues", says({"queues": queues}))
    service.script(1, says(job(1, "PENDING", queue="video")))
    with Terminal(tmp_path, "submit", "transcode", "--wait", "--url", service.url) as terminal:
        terminal.until("bide: No worker serves queue video.")
        service.script(1, says(job(1, result={"url": "x"})))
        assert terminal.wait() == 0
        shown = terminal.lines()
    assert sum("No worker serves" in line for line in shown) == 1


# --- help


def test_help_is_in_plain_words(tmp_path: Path) -> None:
    done = run(tmp_path, "wait", "--help", env={"COLUMNS": "100"})
    text = " ".join(done.stdout.split())
    assert "A higher price means fewer requests and a longer delay." in text
