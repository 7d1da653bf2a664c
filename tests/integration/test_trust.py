"""A description that does not come with bide: what it reads and where it sends that is confirmed before the first use."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bide.cli import root
from bide.client.apis.permissions import Permissions
from bide.client.client import AsyncClient
from bide.client.ledger import LedgerRow
from bide.client.ledger.sqlite import SqliteLedger
from bide.pipeline.plan.loader import load_plan
from tests.integration.third_party import ThirdParty
from tests.unit.fake_service import problem, says

SECRET = "the-cloud-password"
DESCRIPTION = """name = "mine"
url = "{url}"
{auth}
[submit]
path = "/t"
body = "{{input}}"
id = "id"
[ask]
path = "/t/{{id}}"
[read]
status = "status"
live = ["live"]
done = ["ok"]
"""
BEARER = '[auth]\nkind = "bearer"\n'
FROM_ENV = BEARER + 'secret.env = ["CLOUD_PASSWORD", "OTHER"]'
OK = {"id": "1", "status": "ok"}


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUD_PASSWORD", SECRET)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "bide" / "trusted.json"


@pytest.fixture
def server() -> Iterator[ThirdParty]:
    with ThirdParty() as running:
        running.rest = says(OK)
        yield running


def write(server: ThirdParty, auth: str = FROM_ENV, path: str = "mine.toml") -> str:
    Path(path).write_text(DESCRIPTION.format(url=server.url, auth=auth))
    return server.url.removeprefix("http://")


def bide(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(root, list(args), prog_name="bide", input=stdin)
    assert SECRET not in result.output + result.stderr
    return result


def said(result: Result) -> str:
    """As one line: click wraps what it says about usage."""
    return " ".join(result.stderr.split())


COMMANDS = [
    ("wait", "1", "--api", "mine.toml"),
    ("status", "1", "--api", "mine.toml"),
    ("cancel", "1", "--api", "mine.toml"),
    ("submit", "-i", "{}", "--api", "mine.toml"),
    ("api", "check", "mine.toml", "--against", "URL", "--id", "1"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_a_terminal_every_command_refuses_and_says_what_to_do(
    command: tuple[str, ...], server: ThirdParty
) -> None:
    host = write(server)
    given = [server.url if word == "URL" else word for word in command]
    result = bide(*given)
    assert result.exit_code == 2
    assert (
        "mine.toml does not come with bide. It sends the environment variable CLOUD_PASSWORD and the environment "
        f"variable OTHER to {host}."
    ) in said(result)
    assert "--trust" in result.stderr
    assert server.asked == []
    if command[0] != "cancel":  # this API cannot
        assert bide(*given, "--trust").exit_code == 0
        assert server.header("Authorization")[0] == f"Bearer {SECRET}"
        before = len(server.asked)
        assert bide(*given).exit_code == 0  # from now on it is known
        assert len(server.asked) > before


def test_another_text_or_another_host_is_asked_about_again(server: ThirdParty) -> None:
    write(server)
    assert bide("status", "1", "--api", "mine.toml", "--trust").exit_code == 0
    with ThirdParty() as other:
        other.rest = says(OK)
        assert bide("status", "1", "--api", "mine.toml", "--url", other.url).exit_code == 2
        assert other.asked == []
    with Path("mine.toml").open("a") as file:
        file.write("# changed\n")
    assert bide("status", "1", "--api", "mine.toml").exit_code == 2


def test_what_is_remembered_is_for_the_user_alone(server: ThirdParty, settings: Path) -> None:
    host = write(server)
    assert bide("status", "1", "--api", "mine.toml", "--trust").exit_code == 0
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.parent.stat().st_mode) == 0o700
    ((digest, stored),) = json.loads(settings.read_text())
    assert (len(digest), stored) == (64, host)
    settings.chmod(0o666)  # another user may have written it
    assert bide("status", "1", "--api", "mine.toml").exit_code == 2


def test_a_configuration_folder_that_cannot_be_written_does_not_stop_trust(
    server: ThirdParty, settings: Path
) -> None:
    write(server)
    settings.parent.parent.write_text("a file, not a folder")
    result = bide("status", "1", "--api", "mine.toml", "--trust")
    assert result.exit_code == 0
    assert "cannot store the confirmation" in result.stderr


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        (BEARER + 'secret.file = "~/.ssh/id_ed25519"', f"the file {Path.home()}/.ssh/id_ed25519"),
        (BEARER + 'secret.command = ["cat", "a file"]', "It runs the command `cat 'a file'`."),
        ('hook = "os:getcwd"', "It runs the Python code os:getcwd."),
        (
            '[auth]\nkind = "oauth2"\ntoken_url = "https://tokens.example/t"\nclient_id.env = "A"\nsecret.env = "B"',
            "the environment variable B and the environment variable A to 127.0.0.1:PORT and tokens.example.",
        ),
        (FROM_ENV + '\nhosts = ["*.evil.example"]', "and *.evil.example."),
    ],
)
def test_it_says_what_is_read_run_and_sent(auth: str, words: str, server: ThirdParty) -> None:
    host = write(server, auth)
    result = bide("status", "1", "--api", "mine.toml")
    assert result.exit_code == 2
    assert words.replace("127.0.0.1:PORT", host) in said(result)
    assert server.asked == []


def test_a_hook_is_not_loaded_before_it_is_confirmed(
    server: ThirdParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evil_hook.py").write_text(
        "from pathlib import Path\nPath('loaded').touch()\ndef Hook(form): return object()\n"
    )
    monkeypatch.syspath_prepend(".")
    write(server, 'hook = "evil_hook:Hook"')
    assert bide("api", "check", "mine.toml").exit_code == 2
    assert bide("api", "show", "mine.toml", "--json").exit_code == 0
    assert not Path("loaded").exists()
    assert bide("api", "check", "mine.toml", "--trust").exit_code == 0
    assert Path("loaded").exists()


@pytest.mark.parametrize("kind", ["hook", "package", "command", "script"])
def test_changed_code_is_asked_about_again(
    kind: str, server: ThirdParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = "class Hook:\n    def __init__(self, form): pass\n"
    script = Path("token.sh")
    script.write_text(f"#!/bin/sh\necho {SECRET}\n")
    script.chmod(0o755)
    auth, code = {
        "hook": ('hook = "changing_hook:Hook"', Path("changing_hook.py")),
        "package": ('hook = "changing.hook:Hook"', Path("changing/__init__.py")),
        "command": (BEARER + 'secret.command = ["./token.sh"]', script),
        "script": (BEARER + 'secret.command = ["sh", "-e", "token.sh"]', script),
    }[kind]
    Path("changing").mkdir()
    Path("changing/__init__.py").write_text("")
    for name in ("changing_hook.py", "changing/hook.py"):
        Path(name).write_text(hook)
    monkeypatch.syspath_prepend(".")
    write(server, auth)
    assert bide("status", "1", "--api", "mine.toml", "--trust").exit_code == 0
    assert bide("status", "1", "--api", "mine.toml").exit_code == 0
    with code.open("a") as file:
        file.write("# changed\n")
    assert bide("status", "1", "--api", "mine.toml").exit_code == 2


def test_a_description_without_secrets_asks_nothing(server: ThirdParty, settings: Path) -> None:
    write(server, "")
    assert bide("wait", "1", "--api", "mine.toml").exit_code == 0
    assert not settings.exists()


@pytest.mark.parametrize("auth", [FROM_ENV, "", FROM_ENV + '\nhosts = ["*.evil.example"]'])
@pytest.mark.parametrize(
    "command", [COMMANDS[0], COMMANDS[1], COMMANDS[3]], ids=lambda command: command[0]
)
def test_a_given_key_is_confirmed_for_the_host_of_the_description(
    command: tuple[str, ...], auth: str, server: ThirdParty
) -> None:
    host = write(server, auth)
    Path("key").write_text(SECRET)
    result = bide(*command, "--key-file", "key")
    assert result.exit_code == 2
    assert f"It sends the key that you gave to {host}" in said(result)
    assert server.asked == []
    assert bide(*command, "--key-file", "key", "--trust").exit_code == 0
    assert server.header("Authorization")[0] == f"Bearer {SECRET}"
    assert bide(*command, "--key", SECRET).exit_code == 0


def test_a_key_and_an_address_that_are_given_ask_nothing(server: ThirdParty) -> None:
    write(server)
    given = ("--key", "given", "--url", server.url)
    assert bide("wait", "1", "--api", "mine.toml", *given).exit_code == 0
    assert server.header("Authorization") == ["Bearer given"]
    write(server, FROM_ENV + '\nhosts = ["*.evil.example"]')
    result = bide("wait", "1", "--api", "mine.toml", *given)
    assert result.exit_code == 2 and "*.evil.example" in said(result)


def test_a_check_of_the_file_alone_asks_nothing(server: ThirdParty) -> None:
    write(server)
    assert bide("api", "check", "mine.toml").exit_code == 0


def test_a_shipped_description_asks_nothing(server: ThirdParty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNOWHERE_API_KEY", "k")
    assert "trust" not in bide("status", "1", "--api", "knowhere", "--url", server.url).stderr


def test_what_a_file_says_cannot_move_the_cursor(server: ThirdParty) -> None:
    write(server, BEARER + 'secret.env = "\\u001b[2JX"')
    assert "\x1b" not in bide("status", "1", "--api", "mine.toml").stderr


async def test_the_library_does_not_ask(server: ThirdParty, tmp_path: Path) -> None:
    write(server)
    async with AsyncClient(api="./mine.toml") as client:
        assert (await client.job("1").status()).status == "DONE"


# --- pipelines

PIPELINE = """
[api]
{api}
[[exports]]
name = "rows"
kind = "k"
[[exports.schema.columns]]
name = "a"
[exports.output]
path = "out.jsonl"
"""


@pytest.mark.parametrize(
    ("api", "words"),
    [
        ('file = "mine.toml"', "the environment variable CLOUD_PASSWORD"),
        ('file = "mine.toml"\nkey.file = "/etc/hosts"', "It sends the file /etc/hosts to"),
        ('name = "knowhere"\nurl = "https://evil.example"', "KNOWHERE_API_KEY to evil.example."),
        ('name = "knowhere"\nkey.env = "CLOUD_PASSWORD"', "CLOUD_PASSWORD to api.knowhereto.ai."),
    ],
)
def test_a_pipeline_is_confirmed_too(api: str, words: str, server: ThirdParty) -> None:
    write(server)
    Path("p.toml").write_text(PIPELINE.format(api=api))
    result = bide("sync", "p.toml")
    assert result.exit_code == 2, result.output
    assert words in said(result) and "--trust" in result.stderr
    assert bide("sync", "p.toml", "--check").exit_code == 0  # nothing is read or sent
    assert server.asked == []
    Path("bide.toml").write_text("[sync]\ntrust = true\n")
    result = bide("sync", "p.toml")
    assert result.exit_code == 2 and "bide.toml cannot set `trust`" in result.stderr


def test_the_file_that_is_shown_is_the_one_that_is_read(server: ThirdParty, tmp_path: Path) -> None:
    """The pipeline's key file is relative to the pipeline, also if the description is in another folder."""
    Path("apis").mkdir()
    write(server, path="apis/mine.toml")
    Path("apis/key").write_text("harmless")
    Path("real").write_text(SECRET)
    Path("key").symlink_to("real")
    Path("p.toml").write_text(PIPELINE.format(api='file = "apis/mine.toml"\nkey.file = "key"'))
    result = bide("sync", "p.toml")
    assert result.exit_code == 2
    assert f"It sends the file {tmp_path.resolve()}/real to" in said(result)


@pytest.mark.parametrize("file", ["../secrets", "/SECRETS", "link"])
def test_a_file_outside_the_folder_of_the_pipeline_is_not_sent_unconfirmed(
    file: str, tmp_path: Path
) -> None:
    (tmp_path / "secrets").write_text("a line\n")
    (tmp_path / "p").mkdir()
    (tmp_path / "p/link").symlink_to(tmp_path / "secrets")
    file = file.replace("/SECRETS", f"{tmp_path}/secrets")
    text = PIPELINE.format(api='name = "knowhere"')
    each = f'kind = "k"\neach = {{ line = "@{file}" }}\ninput = {{ a = "{{line}}" }}'
    (tmp_path / "p/p.toml").write_text(text.replace('kind = "k"', each))
    result = bide("sync", "p/p.toml")
    assert result.exit_code == 2
    words = f"It sends the lines of {(tmp_path / 'secrets').resolve()} to api.knowhereto.ai."
    assert words in said(result)
    assert bide("sync", "p/p.toml", "--check").exit_code == 0


def test_a_file_outside_the_folder_of_the_pipeline_is_not_written_unconfirmed(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    text = PIPELINE.format(api='name = "knowhere"')
    (tmp_path / "p/p.toml").write_text(text.replace("out.jsonl", "../.bashrc.jsonl"))
    result = bide("sync", "p/p.toml")
    assert result.exit_code == 2
    assert f"It writes {tmp_path.resolve()}/.bashrc.jsonl." in said(result)


def test_the_command_of_a_key_for_hashes_is_confirmed() -> None:
    text = PIPELINE.format(api='name = "knowhere"')
    secret = '[exports.schema.secret]\ncommand = ["cat", "x"]\n[[exports.schema.columns]]'
    Path("p.toml").write_text(text.replace("[[exports.schema.columns]]", secret))
    result = bide("sync", "p.toml")
    assert result.exit_code == 2 and "It runs the command `cat x`." in said(result)


def test_files_in_the_folder_of_the_pipeline_ask_nothing(tmp_path: Path, server: ThirdParty) -> None:
    Path("lines").write_text("a line\n")
    text = PIPELINE.format(api='name = "knowhere"')
    Path("p.toml").write_text(text.replace('kind = "k"', 'kind = "k"\neach = { line = "@lines" }'))
    found: list[Permissions] = []
    load_plan(Path("p.toml"), None, found.append)
    assert found == []


@pytest.mark.parametrize("by", ["file", "variable"])
def test_an_address_in_the_settings_is_not_one_that_the_user_typed(
    by: str, server: ThirdParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNOWHERE_API_KEY", SECRET)
    Path("p.toml").write_text(PIPELINE.format(api='name = "knowhere"'))
    if by == "file":
        Path("bide.toml").write_text(f'[sync]\nurl = "{server.url}"\n')
    else:
        monkeypatch.setenv("BIDE_SYNC_URL", server.url)
    result = bide("sync", "p.toml")
    assert result.exit_code == 2
    host = server.url.removeprefix("http://")
    assert f"the environment variable KNOWHERE_API_KEY to {host}" in said(result)
    assert server.asked == []
    server.rest = problem(403, "forbidden")
    assert bide("sync", "p.toml", "--url", server.url).exit_code == 1
    assert server.asked != []


# --- ledgers


def ledger_of(api: str, url: str, path: str = "l") -> None:
    async def write() -> None:
        ledger = SqliteLedger(Path(path))
        await ledger.open()
        await ledger.add([LedgerRow(api=api, base=url, job_id="1")])
        await ledger.close()

    asyncio.run(write())


@pytest.mark.parametrize("more", [(), ("--api", "sync.so"), ("--key", SECRET)])
def test_an_address_of_a_ledger_is_confirmed(
    more: tuple[str, ...], server: ThirdParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNC_API_KEY", SECRET)
    server.rest = says({"id": "1", "status": "COMPLETED", "outputUrl": None})
    ledger_of("sync.so", server.url)
    result = bide("wait", "--ledger", "l", *more)
    assert result.exit_code == 2, result.output
    host = server.url.removeprefix("http://")
    secret = "the key that you gave" if "--key" in more else "the environment variable SYNC_API_KEY"
    assert "The ledger has jobs of sync.so at a URL" in said(result)
    assert f"It sends {secret} to {host}." in said(result)
    assert server.asked == []
    assert bide("wait", "--ledger", "l", "--trust", *more).exit_code == 0
    assert server.header("x-api-key")[0] == SECRET


def test_a_given_key_does_not_go_to_a_service_that_only_a_ledger_names(server: ThirdParty) -> None:
    ledger_of("bide", server.url)
    result = bide("wait", "--ledger", "l", "--key", SECRET)
    assert result.exit_code == 2 and "the key that you gave" in said(result)
    assert server.asked == []


def test_a_given_key_is_confirmed_for_the_address_of_a_ledger(server: ThirdParty) -> None:
    write(server)
    ledger_of("mine", server.url)
    text = Path("mine.toml").read_text()
    Path("mine.toml").write_text(text.replace(f'url = "{server.url}"\n', ""))
    result = bide("wait", "--ledger", "l", "--api", "mine.toml", "--key", SECRET)
    assert result.exit_code == 2
    host = server.url.removeprefix("http://")
    assert f"It sends the key that you gave to {host}." in said(result)
    assert server.asked == []


def test_a_ledger_cannot_name_a_description_file(server: ThirdParty) -> None:
    write(server, "hook = 'os:getcwd'")
    ledger_of("./mine.toml", server.url)
    result = bide("wait", "--ledger", "l", "--trust")
    assert result.exit_code == 1 and "pass its file with --api" in said(result)
    assert server.asked == []


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_a_terminal_is_asked_once(answer: str, code: int, server: ThirdParty) -> None:
    host = write(server)
    command = [sys.executable, "-m", "bide", "status", "1", "--api", "mine.toml"]

    def run() -> tuple[int, str]:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            command, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL
        ) as process:
            os.close(theirs)
            os.write(ours, f"{answer}\n".encode())
            shown = b""
            try:
                while part := os.read(ours, 4096):
                    shown += part
            except OSError:  # the other end is closed
                pass
            os.close(ours)
            return process.wait(), shown.decode()

    exit_code, shown = run()
    assert exit_code == code, shown
    assert f"CLOUD_PASSWORD and the environment variable OTHER to {host}" in " ".join(shown.split())
    assert "Use this description? [y/N]" in shown
    assert len(server.asked) == (1 if code == 0 else 0)
    exit_code, shown = run()
    assert (exit_code, "Use this description?" in shown) == (code, code != 0)
