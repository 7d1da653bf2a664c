"""The command line: help, settings, output and exit codes, against a service over a socket."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from bide.cli import COMMANDS, options, root
from bide.cli.settings import load
from tests.unit import fake_service as fake
from tests.unit.fake_service import FakeService, failed, job, job_id, problem, says


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def bide(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("BIDE_URL", service.url)

    def run(*args: str, input: str | None = None) -> Result:
        return CliRunner().invoke(root, args, input=input, prog_name="bide")

    return run


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- packages that are not installed


@pytest.mark.parametrize(
    ("package", "extra"),
    [
        ("prometheus_client", "server"),
        ("uvloop", "server"),
        ("psycopg", "postgres"),
        ("celery", "celery"),
        ("redis", "redis"),
        ("aiobotocore", "s3"),
        ("imageio_ffmpeg", "demo"),
        ("pyarrow", "pipeline"),
        ("matplotlib", "plot"),
    ],
)
def test_a_missing_package_names_its_extra(
    package: str, extra: str, bide: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "list", (f"{package}.module:list", ""))
    monkeypatch.setitem(sys.modules, package, None)
    result = bide("list")
    assert result.exit_code == 1
    assert result.stderr == (
        f"bide: This needs the package {package}, which is not installed. Run in the checkout of bide: "
        f"pip install '.[{extra}]'\n"
    )


def test_a_missing_package_that_is_not_bides_is_named(
    bide: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "list", ("strange_package:list", ""))
    assert (
        bide("list").stderr == "bide: This needs the package strange_package, which is not installed\n"
    )


# --- help


def _commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_help_has_examples_that_name_the_command(name: str, bide: Any) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.get_short_help_str(200) == COMMANDS[name][1]
    group = click.Group(commands={name: command})
    for path, _ in _commands(group):
        result = bide(*path, "--help")
        assert result.exit_code == 0
        examples = result.stdout.partition("Examples:")[2].partition("Options:")[0]
        assert f"bide {' '.join(path)}" in examples, result.stdout


# Words of the implementation, of statistics and of Python: a user of the command line need not know them.
JARGON = (
    "asyncio|coroutine|event loop|semaphore|mutex|thread|kwargs?|dict|tuple|regex|callback|instantiate|boolean|"
    "hazard|quantile|percentile|posterior|distribution|stochastic|heuristics?|expected loss|ewma|p\\d\\d|"
    "fenc(?:e|ing)|fsync|wal|upsert|monotonic|epoch|idempotent|semantics|payload|opaque|utili[sz]e|leverage|"
    "exponential|full jitter|shelf|purse|teller|lane|errand|told"
)


def test_every_help_is_in_plain_words(bide: Any) -> None:
    for path, command in _commands(root):
        text = bide(*path, "--help").stdout.replace("--new-epoch", "")  # the name of an option
        assert re.findall(rf"\b(?:{JARGON})\b", text, re.IGNORECASE) == [], (path, text)
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"bide {' '.join(path)} {option.opts[0]} has no help"


def test_help_loads_no_command() -> None:
    code = (
        "import sys; sys.argv = ['bide', '--help']\n"
        "import atexit, bide.cli\n"
        "heavy = {'aiohttp', 'msgspec', 'rich', 'pydantic', 'starlette', 'asyncio'}\n"
        "atexit.register(lambda: print('LOADED', sorted(heavy & set(sys.modules))))\n"
        "bide.cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "submit" in done.stdout
    assert done.stdout.endswith("LOADED []\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_script(shell: str, bide: Any) -> None:
    result = bide("completion", shell)
    assert result.exit_code == 0
    assert f"_BIDE_COMPLETE={shell}_complete" in result.stdout


def test_completion_completes_commands_and_options() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from bide.cli import main; main()"],
        env={
            **os.environ,
            "_BIDE_COMPLETE": "bash_complete",
            "COMP_WORDS": "bide submit --pri",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "plain,--priority\n"


# --- errors


@pytest.mark.parametrize(
    "args",
    [
        ("frobnicate",),
        ("submit",),
        ("submit", "k", "--input", "{not json"),
        ("submit", "k", "--input", "@nowhere.json"),
        ("submit", "k", "--run-at", "tomorrow"),
        ("submit", "k", "--run-at", "2030-01-01T00:00:00"),
        ("submit", "k", "--label", "novalue"),
        ("submit", "k", "--timeout", "3"),
        ("status",),
        ("list", "--status", "FINISHED"),
        ("cancel",),
        ("cancel", "x", "--status", "PENDING"),
        ("cancel", "--status", "DONE"),
        ("wait",),
        ("wait", "@nowhere"),
        ("wait", "https://jobs.example/nothing"),
        ("queue", "pause"),
        ("webhooks", "create"),
        ("webhooks", "create", "https://example.org", "--event", "nothing"),
        ("webhooks", "replay", "x"),
        ("webhooks", "replay", "x", "--from", "yesterday"),
    ],
)
def test_wrong_usage_is_2_and_asks_nothing(
    args: tuple[str, ...], bide: Any, service: FakeService
) -> None:
    result = bide(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr and "Traceback" not in result.stderr
    assert service.asked == []


def test_a_mistyped_command_is_recognised(bide: Any) -> None:
    result = bide("wiat", "01JC3X8M0V5T6Q7R8S9A0B1C2D")
    assert result.exit_code == 2
    assert "Error: There is no command 'wiat'. Did you mean wait?" in result.stderr
    assert "Did you mean" not in bide("transcode").stderr


def test_no_service_is_one_line_that_says_what_to_do(bide: Any) -> None:
    result = bide("submit", "k", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("bide: no answer from http://127.0.0.1:9")
    assert "bide serve" in line


def test_a_refusal_is_reported_without_a_traceback(bide: Any, service: FakeService) -> None:
    service.on(
        "POST", "/jobs", problem(422, "unknown-kind", "there is no kind 'k'; there are: transcode")
    )
    result = bide("submit", "k")
    assert result.exit_code == 1
    assert result.stderr == "bide: 422 unknown-kind: there is no kind 'k'; there are: transcode\n"


# --- settings


def test_flags_outrank_variables_and_those_outrank_the_file(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.script(1, says(job(1)))
    (tmp_path / "key.txt").write_text("from-file\n")
    (tmp_path / "flag.txt").write_text("from-flag-file\n")
    (tmp_path / "bide.toml").write_text(f'[client]\nurl = "{service.url}"\nkey-file = "key.txt"\n')

    def sent(*args: str) -> str | None:
        result = CliRunner().invoke(root, ["status", job_id(1), *args])
        assert result.exit_code == 0, result.stderr
        return service.asked[-1].headers.get("Authorization")

    assert sent() == "Bearer from-file"
    monkeypatch.setenv("BIDE_KEY", "from-variable")
    assert sent() == "Bearer from-variable"
    assert sent("--key-file", "flag.txt") == "Bearer from-flag-file"
    assert sent("--key", "from-flag") == "Bearer from-flag"
    monkeypatch.setenv("BIDE_URL", "http://127.0.0.1:9")
    assert CliRunner().invoke(root, ["status", job_id(1)]).exit_code == 1
    assert sent("--url", service.url) == "Bearer from-variable"


def test_queue_commands_and_another_file_are_configured_too(
    service: FakeService, tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "other.toml").write_text(f'[client]\nurl = "{service.url}"\nkey_file = "k"\n')
    (tmp_path / "etc" / "k").write_text("beside-the-file")
    service.on("POST", "/queues/video/pause", says({}))
    result = CliRunner().invoke(
        root, ["--config", "etc/other.toml", "queue", "pause", "video", "--json"]
    )
    assert result.exit_code == 0
    assert lines(result) == [{"name": "video", "paused": True}]
    assert service.header("Authorization") == ["Bearer beside-the-file"]


def test_every_command_that_talks_to_a_service_is_configured(tmp_path: Path) -> None:
    (tmp_path / "bide.toml").write_text('[client]\nurl = "http://jobs.example"\n')
    with click.Context(root) as ctx:
        load(ctx, None)
        for name in sorted(COMMANDS.keys() - {"doctor"}):  # has a table of its own
            command = root.get_command(ctx, name)
            own = (ctx.default_map or {}).get(name, {})
            found = {name: (command, own)}
            if isinstance(command, click.Group):
                found = {
                    f"{name} {sub}": (one, own.get(sub, {})) for sub, one in command.commands.items()
                }
            for title, (one, settings) in found.items():
                assert one is not None
                talks = {"url", "key", "key_file"} <= {parameter.name for parameter in one.params}
                assert ("url" in settings) == talks, title


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["--hosts", "a, b,"], {}),
        ([], {"default_map": {"hosts": ["a", "b"]}}),
        ([], {"default_map": {"hosts": "a,b"}}),
        ([], {"env": {"BIDE_HOSTS": "a,b"}}),
    ],
)
def test_names_come_with_commas_or_as_a_list(arguments: list[str], settings: dict[str, Any]) -> None:
    @click.command()
    @options.names("--hosts", "Names.", envvar="BIDE_HOSTS")
    def show(hosts: tuple[str, ...]) -> None:
        click.echo(repr(hosts))

    assert CliRunner().invoke(show, arguments, **settings).output == "('a', 'b')\n"


@pytest.mark.parametrize(
    "content,said",
    [
        ("[client]\nurll = 'x'", "urll"),
        ("[clint]\nurl = 'x'", "clint"),
        ("url", "bide.toml"),
        ("[limits]\nsubmit = 'often'", "bide.toml: [limits] submit: 'often' is not a limit"),
    ],
)
def test_a_mistake_in_the_file_is_reported(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bide.toml").write_text(content)
    result = CliRunner().invoke(root, ["list"])
    assert result.exit_code == 2
    assert said in result.stderr


def test_two_keys_are_one_too_many(bide: Any, tmp_path: Path) -> None:
    (tmp_path / "k").write_text("x")
    assert bide("list", "--key", "a", "--key-file", "k").exit_code == 2


# --- submit


def test_submit_prints_the_id_or_the_resource(bide: Any, service: FakeService, tmp_path: Path) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    (tmp_path / "in.json").write_text('{"height": 480}')
    assert bide("submit", "transcode", "--input", "@in.json").stdout == f"{job_id(1)}\n"
    piped = bide("submit", "transcode", "-i", "-", "--json", "--label", "a=b=c", input='{"height": 720}')
    assert lines(piped)[0]["status"] == "PENDING"
    first, second = service.bodies
    assert first == {"kind": "transcode", "input": {"height": 480}}
    assert second == {"kind": "transcode", "input": {"height": 720}, "labels": {"a": "b=c"}}


def test_submit_and_wait_prints_the_result(bide: Any, service: FakeService) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    service.script(1, says(job(1, result={"frames": 3})))
    result = bide("submit", "transcode", "--wait", "--idempotency-key", "k1", "--priority", "-2")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"frames": 3})
    assert service.bodies[0]["priority"] == -2
    assert service.header("Idempotency-Key")[0] == '"k1"'


def test_submit_and_wait_fails_with_the_job(bide: Any, service: FakeService) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    service.script(1, says(failed(1)))
    result = bide("submit", "transcode", "--wait", "--json")
    assert result.exit_code == 1
    assert lines(result)[0]["error"]["code"] == "OCR_TIMEOUT"
    assert "OCR_TIMEOUT: page 7" in result.stderr


def test_submit_and_wait_times_out_with_3(bide: Any, service: FakeService) -> None:
    never = threading.Event()
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    service.script(1, fake.held(job(1), never))
    result = bide("submit", "transcode", "--wait", "--timeout", "0.05")
    never.set()
    assert result.exit_code == 3
    assert "it still runs" in result.stderr


# --- status, list, cancel, retry, queue


def test_status_of_one_shows_what_is_known(bide: Any, service: FakeService) -> None:
    running = job(1, "PROCESSING", progress={"percent": 41.5, "message": "Transcoding"})
    service.script(1, says(running))
    shown = bide("status", job_id(1)).stdout
    assert "PROCESSING" in shown and "42% Transcoding" in shown
    assert "finished" not in shown
    assert lines(bide("status", job_id(1), "--json"))[0]["progress"]["percent"] == 41.5


def test_status_and_list_show_an_accepted_cancel(bide: Any, service: FakeService) -> None:
    progress = {"percent": 41.5, "message": "Transcoding"}
    running = job(1, "PROCESSING", cancelRequested=True, progress=progress)
    service.script(1, says(running))
    shown = bide("status", job_id(1)).stdout
    assert "PROCESSING (cancel requested)" in shown and "42% Transcoding" in shown
    service.on("GET", "/jobs", says({"jobs": [running], "next": None, "missing": []}))
    assert "cancel requested" in bide("list").stdout
    service.script(2, says(job(2, "CANCELLED", cancelRequested=True)))
    assert "requested" not in bide("status", job_id(2)).stdout


def test_status_of_several_is_one_request_and_names_the_missing(bide: Any, service: FakeService) -> None:
    service.on("GET", "/jobs", says({"jobs": [job(2), failed(1)], "next": None, "missing": ["x"]}))
    result = bide("status", job_id(1), job_id(2), "x", "--json")
    assert result.exit_code == 1
    assert [line["jobId"] for line in lines(result)] == [job_id(1), job_id(2)]
    assert result.stderr == "bide: no such job: x\n"
    assert len(service.asked) == 1


def test_list_shows_whole_values_in_a_pipe(bide: Any, service: FakeService) -> None:
    error = {"code": "BAD", "message": "m" * 300}
    service.on(
        "GET", "/jobs", says({"jobs": [job(1, "ERROR", error=error)], "next": None, "missing": []})
    )
    result = bide(
        "list", "--status", "error", "--kind", "transcode", "--queue", "video", "--label", "a=b"
    )
    header, row = result.stdout.splitlines()
    assert header.split()[:3] == ["job", "kind", "status"]
    assert row.split()[:3] == [job_id(1), "transcode", "ERROR"]
    assert "m" * 300 in row
    query = service.asked[0].query
    assert dict(query) == {
        "status": "ERROR",
        "kind": "transcode",
        "queue": "video",
        "label": "a:b",
        "limit": "20",
    }


def test_list_all_follows_every_page(bide: Any, service: FakeService) -> None:
    service.on(
        "GET",
        "/jobs",
        says({"jobs": [job(2)], "next": "c", "missing": []}),
        says({"jobs": [job(1)], "next": None, "missing": []}),
    )
    assert len(lines(bide("list", "--all", "--json"))) == 2


def test_cancel_goes_on_after_a_refusal(bide: Any, service: FakeService) -> None:
    service.on("POST", f"/jobs/{job_id(1)}/cancel", problem(409, "conflict", "it has ended"))
    service.on("POST", f"/jobs/{job_id(2)}/cancel", says(job(2, "PROCESSING")))
    result = bide("cancel", job_id(1), job_id(2))
    assert result.exit_code == 1
    assert result.stdout == f"{job_id(2)} is being stopped\n"
    assert "it has ended" in result.stderr


def test_retry_by_kind_takes_only_what_can_run_again(bide: Any, service: FakeService) -> None:
    service.on("GET", "/jobs", says({"jobs": [failed(1)], "next": None, "missing": []}))
    service.on("POST", f"/jobs/{job_id(1)}/retry", says(job(1, "PENDING")))
    result = bide("retry", "--kind", "transcode", "--json")
    assert result.exit_code == 0
    assert lines(result)[0]["status"] == "PENDING"
    asked = service.asked[0].query
    assert asked.getall("status") == ["CANCELLED", "ERROR", "PARTIAL_SUCCESS"]
    assert asked["kind"] == "transcode"


def test_queue_list_shows_what_the_service_tells(bide: Any, service: FakeService) -> None:
    queue = {"name": "video", "backlog": 3, "oldestAge": 1.25, "paused": False, "concurrency": None}
    service.on("GET", "/queues", says({"queues": [queue]}))
    header, row = bide("queue", "list").stdout.splitlines()
    assert header.split() == ["name", "backlog", "oldestAge", "paused", "concurrency"]
    assert row.split() == ["video", "3", "1.2", "no"]
    assert lines(bide("queue", "list", "--json")) == [queue]


# --- wait


def test_wait_prints_one_line_a_job(bide: Any, service: FakeService) -> None:
    service.script(1, says(job(1, result={"n": 1})))
    service.script(2, says(failed(2)))
    result = bide("wait", job_id(1), job_id(2), job_id(1), "--json")
    assert result.exit_code == 1
    found = {line["jobId"]: line for line in lines(result)}
    assert found[job_id(1)] == {
        "jobId": job_id(1),
        "api": "bide",
        "status": "DONE",
        "result": {"n": 1},
        "error": None,
        "requests": 1,
        "finishedAt": "2030-01-01T00:01:00.000Z",
    }
    assert found[job_id(2)]["error"]["failedStep"] == "text"
    assert len(found) == len(lines(result)) == 2


def test_wait_reads_ids_urls_files_and_lines_of_json(
    bide: Any, service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        service.script(number, says(job(number, result=number)))
    service.on("GET", f"/api/jobs/{job_id(4)}", says(job(4, result=4)))
    (tmp_path / "ids").write_text(f"# mine\n{job_id(2)}\n\n")
    monkeypatch.setenv("BIDE_KEY", "mine")
    url = f"{service.url}/api/jobs/{job_id(4)}?include=log"
    stdin = json.dumps({"jobId": job_id(3), "kind": "k"}) + "\n"
    result = bide("wait", job_id(1), "@ids", "-", url, "--json", input=stdin)
    assert result.exit_code == 0
    assert sorted(line["result"] for line in lines(result)) == [1, 2, 3, 4]
    # The variable's key is for the service of --url, not for whatever address turns up.
    keys = {request.path: request.headers.get("Authorization") for request in service.asked}
    assert keys.pop(f"/api/jobs/{job_id(4)}") is None
    assert set(keys.values()) == {"Bearer mine"}


def test_wait_that_times_out_is_3_even_when_some_failed(bide: Any, service: FakeService) -> None:
    never = threading.Event()
    service.script(1, says(failed(1)))
    service.script(2, fake.held(job(2), never))
    result = bide("wait", job_id(1), job_id(2), "--timeout", "0.3", "--json")
    never.set()
    assert result.exit_code == 3
    assert [line["jobId"] for line in lines(result)] == [job_id(1)]
    assert job_id(2) in result.stderr


def test_wait_for_an_unknown_job_fails_and_says_so(bide: Any) -> None:
    result = bide("wait", job_id(9), "--json")
    assert result.exit_code == 1
    (line,) = lines(result)
    assert line["status"] is None
    assert line["error"]["code"] == "not-found"


def test_wait_for_nothing_is_a_usage_error(bide: Any) -> None:
    """In `bide submit … | bide wait -` the failure of the first command must not look like a success."""
    result = bide("wait", "-", "--json", input="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no jobs in -" in result.stderr


def test_wait_saves_results_and_files(bide: Any, service: FakeService, tmp_path: Path) -> None:
    file = {"name": "a.txt", "contentType": "text/plain", "size": 2, "sha256": "", "url": "/x"}
    evil = {**file, "name": "../evil"}
    service.script(1, says(job(1, result={"n": 1}, files=[file])))
    service.script(2, says(job(2, result=2, files=[evil])))
    service.on("GET", f"/jobs/{job_id(1)}/files/a.txt", fake.text(200, "hi", "text/plain"))
    result = bide("wait", job_id(1), job_id(2), "--out", "results")
    assert json.loads((tmp_path / "results" / f"{job_id(1)}.json").read_text()) == {"n": 1}
    assert (tmp_path / "results" / job_id(1) / "a.txt").read_text() == "hi"
    assert result.exit_code == 1
    assert "not saved" in result.stderr
    assert not list(tmp_path.rglob("evil*"))


def test_wait_runs_a_command_for_each_job(bide: Any, service: FakeService, tmp_path: Path) -> None:
    service.script(1, says(job(1, result={"n": 1})))
    done = bide("wait", job_id(1), "--exec", 'cat > "$BIDE_JOB_ID.$BIDE_JOB_STATUS"', "--json")
    assert done.exit_code == 0
    assert json.loads((tmp_path / f"{job_id(1)}.DONE").read_text()) == lines(done)[0]
    assert bide("wait", job_id(1), "--exec", "exit 7").exit_code == 1


def test_wait_says_once_why_nothing_happens(bide: Any) -> None:
    result = bide("wait", job_id(1), job_id(2), "--url", "http://127.0.0.1:9", "--timeout", "0.5")
    assert result.exit_code == 3
    assert result.stderr.count("no answer from http://127.0.0.1:9") == 1


def test_an_interrupted_wait_is_130(service: FakeService) -> None:
    """A real process and a real Ctrl-C, once its request is open."""
    asked, never = threading.Event(), threading.Event()

    async def hold(request: Any) -> Any:
        asked.set()
        return await fake.held(job(1), never)(request)

    service.script(1, hold)
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from bide.cli import main; main()",
            "wait",
            job_id(1),
            "--url",
            service.url,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert asked.wait(20)
    process.send_signal(2)
    _, stderr = process.communicate(timeout=20)
    never.set()
    assert process.returncode == 130
    assert stderr.splitlines() == [
        "bide: 0 done, 0 failed, 1 not ended, 1 request, 0 refused",
        "bide: the jobs are not affected. With --ledger FILE, a short command resumes. Wait for them again with: "
        f"bide wait {job_id(1)} --url {service.url}",
        "bide: interrupted",
    ]
