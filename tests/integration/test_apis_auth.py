"""Credentials over a socket: each kind, each place that it may come from, tokens that end, and nothing shown or stored."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from click.testing import CliRunner

from bide.cli import root
from bide.client.apis.answers import Call
from bide.client.apis.form import Description
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.errors import BideError, ServiceError, SetupError
from tests.integration.third_party import ThirdParty, tells
from tests.unit.fake_service import Reply

SPEED = 100.0
SECRET, PASSWORD, REFRESH = "client-secret-hush", "pass-word-hush", "refresh-token-hush"
TOKENS = tuple(f"access-token-hush-{number}" for number in range(9))
HUSH = b"hush"  # is in every one of them

API = """
name = "x"
url = "{url}"
{auth}
[submit]
path = "/tasks"
id = "id"
[ask]
path = "/tasks/{{id}}"
[read]
status = "state"
live = ["busy"]
done = ["ready"]
[result]
value = "value"
[cancel]
path = "/tasks/{{id}}/cancel"
"""
BUSY, READY = tells({"state": "busy"}), tells({"state": "ready", "value": 7})


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Iterator[ThirdParty]:
    caplog.set_level(logging.DEBUG)
    with ThirdParty() as running:
        running.on("POST", "/tasks", tells({"id": "t1"}, 201))
        running.rest = READY
        yield running
    assert "hush" not in caplog.text
    for path in tmp_path.glob("ledger*"):
        assert HUSH not in path.read_bytes()


def described(server: ThirdParty, folder: Path, auth: str) -> Path:
    path = folder / "x.toml"
    path.write_text(API.format(url=server.url, auth=auth.format(url=server.url)))
    return path


def account(server: ThirdParty, folder: Path, auth: str, key: str | None = None) -> AsyncClient:
    path = described(server, folder, auth)
    return AsyncClient(None, key, api=str(path), ledger=folder / "ledger", timing=Timing(SPEED))


def shown(error: BaseException) -> str:
    """As a log or a crash reporter would have it: with the traceback, and what the exceptions hold."""
    text = "".join(traceback.format_exception(error))
    while True:
        text += f"{error!r} {getattr(error, '__dict__', '')}"
        following = error.__cause__ or error.__context__
        if following is None:
            return text
        error = following


# --- kinds and places


BASIC = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ('[auth]\nkind = "header"\nheader = "X-Api-Key"\nsecret.env = "HUSH"', "X-Api-Key", SECRET),
        (
            '[auth]\nkind = "header"\nprefix = "Key "\nsecret.env = ["NO", "HUSH"]',
            "Authorization",
            f"Key {SECRET}",
        ),
        ('[auth]\nkind = "bearer"\nsecret.env = "HUSH"', "Authorization", f"Bearer {SECRET}"),
        ('[auth]\nkind = "bearer"\nsecret.file = "hush.txt"', "Authorization", f"Bearer {SECRET}"),
        (
            '[auth]\nkind = "bearer"\nsecret.command = ["cat", "{folder}/hush.txt"]',
            "Authorization",
            f"Bearer {SECRET}",
        ),
        ('[auth]\nkind = "basic"\nuser = "me"\nsecret.env = "PASS"', "Authorization", BASIC),
        ('[auth]\nkind = "basic"\nuser.env = "ME"\nsecret.env = "PASS"', "Authorization", BASIC),
        ('[auth]\nkind = "basic"\nsecret.env = "PAIR"', "Authorization", BASIC),
        ('[auth]\nkind = "bearer"\noptional = true\nsecret.env = "NO"', "Authorization", None),
        ("", "Authorization", None),
    ],
)
async def test_each_kind_from_each_place(
    auth: str,
    header: str,
    value: str | None,
    server: ThirdParty,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "hush.txt").write_text(f"{SECRET}\n")
    for name, secret in {"HUSH": SECRET, "PASS": PASSWORD, "ME": "me", "PAIR": f"me:{PASSWORD}"}.items():
        monkeypatch.setenv(name, secret)
    async with account(server, tmp_path, auth.replace("{folder}", str(tmp_path))) as client:
        job = await client.submit("any", {})
        assert await job.result(timeout=8) == 7
        parts = (client, job, client._account, client._account._credential, client._account._signer)
        assert "hush" not in "".join(map(repr, parts))
    assert {request.headers.get(header) for request in server.asked} == {value}


async def test_a_missing_secret_is_reported_with_the_place_where_it_should_be(
    server: ThirdParty, tmp_path: Path
) -> None:
    for place, says in (
        ('secret.env = ["A_KEY", "B_KEY"]', "set A_KEY or B_KEY"),
        ('secret.file = "gone.txt"', "gone.txt: No such file"),
        ('secret.command = ["false"]', "`false` for the credential failed with exit code 1"),
    ):
        with pytest.raises(SetupError, match=says):
            account(server, tmp_path, f'[auth]\nkind = "bearer"\n{place}')
    assert server.asked == []


# --- tokens


class Tokens:
    """Gives out tokens as OAuth2 says, each good for so many requests; a refresh token is good for once."""

    def __init__(self, server: ThirdParty, uses: int = 1000) -> None:
        self.forms: list[dict[str, str]] = []
        self.basic: list[str | None] = []
        self.refresh = REFRESH
        self.refused: Reply | None = None
        self._uses, self._left = uses, 0
        server.on("POST", "/token", self._give)

    async def _give(self, request: web.Request) -> web.StreamResponse:
        form = {name: value[0] for name, value in parse_qs((await request.read()).decode()).items()}
        self.forms.append(form)
        self.basic.append(request.headers.get("Authorization"))
        if self.refused is not None:
            return await self.refused(request)
        answer = {"access_token": TOKENS[len(self.forms)], "expires_in": 3600}
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != self.refresh:
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.refresh = answer["refresh_token"] = f"{REFRESH}-{len(self.forms)}"
        self._left = self._uses
        return web.json_response(answer)

    def behind(self, reply: Reply) -> Reply:
        async def checked(request: web.Request) -> web.StreamResponse:
            newest = f"Bearer {TOKENS[len(self.forms)]}"
            if self._left <= 0 or request.headers.get("Authorization") != newest:
                return web.json_response({"message": f"expired: {newest}"}, status=401)
            self._left -= 1
            return await reply(request)

        return checked


CLIENT = """[auth]
kind = "oauth2"
token_url = "{url}/token"
client_id = "me"
secret.env = "HUSH"
scope = "jobs.read jobs.write"
extra = {{ audience = "jobs" }}"""
BY_REFRESH = """[auth]
kind = "oauth2"
grant = "refresh_token"
token_url = "{url}/token"
client_id = "me"
client_in = "header"
secret.env = "HUSH"
refresh_token.env = "REFRESH"
"""


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSH", SECRET)
    monkeypatch.setenv("REFRESH", REFRESH)


@pytest.mark.usefixtures("secrets")
async def test_client_credentials_as_a_form(server: ThirdParty, tmp_path: Path) -> None:
    tokens = Tokens(server)
    server.rest = tokens.behind(READY)
    async with account(server, tmp_path, CLIENT) as client:
        assert await client.job("t1").result(timeout=8) == 7
    assert tokens.forms == [
        {
            "grant_type": "client_credentials",
            "client_id": "me",
            "client_secret": SECRET,
            "scope": "jobs.read jobs.write",
            "audience": "jobs",
        }
    ]


@pytest.mark.usefixtures("secrets")
async def test_a_refresh_token_that_rotates_while_tokens_end_half_way(
    server: ThirdParty, tmp_path: Path
) -> None:
    tokens = Tokens(server, uses=3)
    server.rest = tokens.behind(BUSY)
    server.on("POST", "/tasks", tokens.behind(tells({"id": "t1"}, 201)))
    async with account(server, tmp_path, BY_REFRESH) as client:
        job = await client.submit("any", {})
        for _ in range(4):
            assert (await job.status()).status == "PROCESSING"
        server.rest = tokens.behind(READY)
        assert await job.result(timeout=8) == 7
    used = [form["refresh_token"] for form in tokens.forms]
    assert used == [REFRESH, f"{REFRESH}-1"]
    pair = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert set(tokens.basic) == {f"Basic {pair}"}
    assert all("client_secret" not in form for form in tokens.forms)


@pytest.mark.usefixtures("secrets")
@pytest.mark.parametrize("auth", [CLIENT, BY_REFRESH], ids=["client", "refresh"])
async def test_a_token_that_is_refused_half_way_ends_the_wait_and_shows_nothing(
    auth: str, server: ThirdParty, tmp_path: Path
) -> None:
    """Some repeat in the refusal what they refuse."""
    tokens = Tokens(server, uses=2)
    server.rest = tokens.behind(BUSY)
    async with account(server, tmp_path, auth) as client:
        job = client.job("t1")
        await job.status()
        said = f"not known: {SECRET}" + (f", {REFRESH}, {REFRESH}-1" if auth is BY_REFRESH else "")
        tokens.refused = tells({"error": "invalid_grant", "error_description": said}, 400)
        with pytest.raises(ServiceError, match="the token was refused: not known: ") as caught:
            await job.result(timeout=8)
        with pytest.raises(ServiceError) as again:
            await client.submit("any", {})
        with pytest.raises(ServiceError) as cancelled:
            await job.cancel()
    assert caught.value.status == 401
    text = "".join(shown(error.value) for error in (caught, again, cancelled))
    assert "hush" not in text and "[hidden]" in text
    assert len(tokens.forms) <= 6


async def test_a_password_that_is_repeated_is_hidden(
    server: ThirdParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASS", PASSWORD)
    server.rest = tells({"message": f"me:{PASSWORD} ({BASIC}) is unknown"}, 401)
    async with account(
        server, tmp_path, '[auth]\nkind = "basic"\nuser = "me"\nsecret.env = "PASS"'
    ) as client:
        with pytest.raises(ServiceError) as caught:
            await client.job("t1").result(timeout=8)
    assert PASSWORD not in shown(caught.value) and BASIC[6:] not in shown(caught.value)


# --- a hook


class Unable:
    """Signs nothing, for it lacks something."""

    def __init__(self, form: Description) -> None: ...

    def sign(self, call: Call, now: float) -> Call:
        raise SetupError("no credentials: run `login`")


async def test_a_hook_that_cannot_sign_ends_all_waits_at_once(
    server: ThirdParty, tmp_path: Path
) -> None:
    async with account(server, tmp_path, f'hook = "{__name__}:Unable"') as client:
        jobs = [client.job(f"t{number}") for number in range(20)]
        await client.wait_all(jobs, timeout=5)
        for operation in (jobs[7].result(timeout=5), client.submit("any", {}), jobs[7].status()):
            with pytest.raises(BideError, match="run `login`"):
                await operation
    assert server.asked == []


# --- the command line


@pytest.mark.usefixtures("secrets")
def test_no_command_shows_a_secret_even_with_its_traceback(
    server: ThirdParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(described(server, tmp_path, CLIENT))
    tokens = Tokens(server)
    tokens.refused = tells({"error_description": f"unknown {SECRET}"}, 401)
    monkeypatch.setenv("BIDE_DEBUG", "1")
    for args in (
        ("api", "show", path),
        ("api", "show", path, "--json"),
        ("api", "check", path),
        ("api", "check", path, "--against", server.url, "--id", "t1"),  # it is not confirmed
        ("api", "check", path, "--against", server.url, "--id", "t1", "--trust"),
        ("wait", "t1", "--api", path, "--json"),
        ("submit", "any", "--api", path),
        ("status", "t1", "--api", path),
        ("cancel", "t1", "--api", path),
    ):
        result = CliRunner().invoke(root, list(args), prog_name="bide")
        said = result.output + (shown(result.exception) if result.exception else "")
        assert "hush" not in said, args
    assert len(tokens.forms) >= 5


def test_the_json_of_a_description_names_the_places_of_secrets_only(tmp_path: Path) -> None:
    with ThirdParty() as server:
        path = str(described(server, tmp_path, CLIENT))
    form = json.loads(CliRunner().invoke(root, ["api", "show", path, "--json"]).stdout)
    assert form["auth"]["secret"] == {"env": "HUSH", "file": None, "command": None}
