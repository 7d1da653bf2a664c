"""Credentials on bad days: wrong, forbidden, expired or echoed; no other host gets them, and no output shows them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from bide.client.client import AsyncClient
from bide.client.http import transport
from bide.client.job import JobHandle
from bide.core.errors import BideError, JobFailed, ServiceError
from tests.integration import third_party as their
from tests.integration.third_party import (
    KEY,
    SPEED,
    ThirdParty,
    done,
    film,
    generation,
    ids,
    leads_to,
    own,
    page,
    sync_so,
    tells,
)
from tests.unit import fake_service as fake
from tests.unit.fake_service import Reply, job_id, problem
from tests.waiting import eventually

SECRETS = (KEY, "client-secret-not-to-be-seen", "token-not-to-be-seen")


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Iterator[ThirdParty]:
    caplog.set_level(logging.DEBUG)
    with ThirdParty() as running:
        yield running
    assert all(secret not in caplog.text for secret in SECRETS)
    for path in tmp_path.rglob("*ledger*"):
        assert all(secret.encode() not in path.read_bytes() for secret in SECRETS)


def shown(error: BideError) -> str:
    return f"{error} {error!r} {vars(error)}"


async def failures(handles: list[JobHandle]) -> list[ServiceError]:
    found = []
    for handle in handles:
        with pytest.raises(ServiceError) as caught:
            await handle.result(timeout=8)
        found.append(caught.value)
    return found


# --- a key


async def test_a_wrong_key_ends_all_waits_with_one_precise_error_and_few_requests(
    server: ThirdParty, tmp_path: Path
) -> None:
    # Some repeat the key that they refuse.
    server.rest = tells({"message": f"unknown key {KEY}"}, 401)
    async with sync_so(server, ledger=tmp_path / "ledger") as client:
        handles = [client.job(f"gen-{number}") for number in range(100)]
        await client.wait_all(handles, timeout=8)
        assert len(server.asked) <= 8
        errors = [handle._state.error for handle in handles]
        source = "The credential is the one that you passed."
        assert {str(error) for error in errors} == {f"401 http-401: unknown key [hidden]. {source}"}
        (error,) = await failures(handles[:1])
        with pytest.raises(ServiceError) as caught:
            await client.submit("lipsync", {})
    assert KEY not in shown(error) + shown(caught.value)


async def test_a_wrong_key_ends_the_wait_for_many_of_a_service(server: ThirdParty) -> None:
    server.rest = problem(401, "no-key", f"who is {KEY}?")
    async with own(server) as client:
        handles = [client.job(id) for id in ids(200)]
        await client.wait_all(handles, timeout=8)
        assert len(server.asked) <= 3
        (error,) = await failures([client.job(job_id(1))])
    assert error.status == 401 and error.code == "no-key"
    assert KEY not in shown(error)


async def test_a_wait_can_begin_again_once_the_key_is_right(server: ThirdParty) -> None:
    server.generation(1, tells({"message": "unknown key"}, 401), done())
    async with sync_so(server) as client:
        job = client.job("gen-1")
        await failures([job])
        assert await job.result(timeout=8) == film()


async def test_a_forbidden_job_ends_its_own_wait_alone(server: ThirdParty) -> None:
    server.generation(1, tells({"message": "not yours"}, 403))
    server.generation(2, tells(generation(2, "PROCESSING")), done(2))
    async with sync_so(server) as client:
        theirs, ours = client.job("gen-1"), client.job("gen-2")
        await client.wait_all([theirs, ours], timeout=8)
        (error,) = await failures([theirs])
        assert error.status == 403 and "not yours" in str(error)
        assert await ours.result() == film(2)
    assert server.count("gen-1") == 1


async def test_a_list_that_is_forbidden_because_of_one_job_is_asked_for_one_by_one(
    server: ThirdParty,
) -> None:
    server.on("GET", "/jobs", problem(403, "forbidden"))
    for number in range(40):
        server.script(number, tells(fake.job(number, result=number)))
    server.script(7, problem(403, "forbidden", "not yours"))
    async with own(server) as client:
        handles = await client.wait_all([client.job(id) for id in ids(40)], timeout=8)
        assert await handles[8].result() == 8
        (error,) = await failures([handles[7]])
    assert error.status == 403


# --- a token


class Tokens:
    """Gives out tokens, and takes only the newest; `revoke` makes it worthless."""

    def __init__(self, server: ThirdParty, life: float = 3600.0) -> None:
        self.given = self.taken = 0
        self.times: dict[str, float] = {}
        self.valid = ""
        self._server = server
        self._life = life
        server.on("POST", "/token", self.give)

    @property
    def asked(self) -> int:
        return self._server.count("/token")

    async def give(self, request: web.Request) -> web.StreamResponse:
        self.given += 1
        self.valid = f"token-not-to-be-seen-{self.given}"
        self.times[f"Bearer {self.valid}"] = time.monotonic()
        return web.json_response({"access_token": self.valid, "expires_in": self._life})

    def revoke(self) -> None:
        self.valid = ""

    def behind(self, reply: Reply) -> Reply:
        async def checked(request: web.Request) -> web.StreamResponse:
            if not self.valid or request.headers.get("Authorization") != f"Bearer {self.valid}":
                return web.json_response({"message": "token expired"}, status=401)
            self.taken += 1
            return await reply(request)

        return checked


DESCRIPTION = """
name = "by-token"
[auth]
kind = "oauth2"
client_id = "me"
token_url = "{url}/token"
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
"""


def by_token(server: ThirdParty, tmp_path: Path, speed: float = SPEED) -> AsyncClient:
    client = their.described(tmp_path, server, DESCRIPTION.format(url=server.url), speed)
    client._account._credential._key = SECRETS[1]  # type: ignore[union-attr]
    client._account._credential.renew()  # type: ignore[union-attr]
    return client


BUSY, READY = tells({"state": "busy"}), tells({"state": "ready", "value": 7})


async def test_a_token_that_expires_half_way_is_renewed_before_it_does(
    server: ThirdParty, tmp_path: Path
) -> None:
    life, speed = 30.0, 25.0  # a token of 1.2 s, so that a busy machine does not outlast it
    tokens = Tokens(server, life)
    denied: list[bool] = []
    ends = time.monotonic() + 60.0 / speed  # a minute of the client's own time

    async def task(request: web.Request) -> web.StreamResponse:
        given = tokens.times.get(request.headers.get("Authorization", ""), 0.0)
        denied.append(time.monotonic() - given > life / speed)
        return await (READY if time.monotonic() > ends else BUSY)(request)

    server.rest = task
    async with by_token(server, tmp_path, speed) as client:
        jobs = [client.job(f"t{number}") for number in range(20)]
        await client.wait_all(jobs, timeout=20)
        assert await jobs[0].result() == 7
    assert 3 <= tokens.asked <= 10
    assert sum(denied) <= len(denied) / 10  # a request may be on its way for long


async def test_a_token_that_is_revoked_half_way_is_renewed_once_for_all(
    server: ThirdParty, tmp_path: Path
) -> None:
    tokens = Tokens(server)
    server.rest = tokens.behind(BUSY)
    server.on("POST", "/tasks", tokens.behind(tells({"id": "t99"}, 201)))

    async def more_are_taken(count: int) -> None:
        goal = tokens.taken + count
        await eventually(lambda: tokens.taken >= goal)

    async with by_token(server, tmp_path) as client:
        jobs = [client.job(f"t{number}") for number in range(20)]
        waiting = asyncio.create_task(client.wait_all(jobs, timeout=8))
        for _ in range(2):
            await more_are_taken(20)
            tokens.revoke()
        assert (await client.submit("any", {})).id == "t99"  # a submission is sent again, too
        server.rest = tokens.behind(READY)
        await waiting
        assert [await job.result() for job in jobs] == [7] * 20
    assert tokens.asked == 3
    assert {job.requests > 1 for job in jobs} == {True}


async def test_a_token_that_is_never_taken_ends_the_waits_with_few_requests(
    server: ThirdParty, tmp_path: Path
) -> None:
    tokens = Tokens(server)
    server.rest = tells({"message": "no such scope"}, 401)
    async with by_token(server, tmp_path) as client:
        jobs = [client.job(f"t{number}") for number in range(50)]
        await client.wait_all(jobs, timeout=8)
        assert len(server.asked) <= 20
        assert tokens.asked <= 3
        (error,) = await failures(jobs[:1])
    assert "no such scope" in str(error)


async def test_a_job_that_is_forbidden_costs_few_tokens_and_no_other_job(
    server: ThirdParty, tmp_path: Path
) -> None:
    tokens = Tokens(server)
    server.rest = tokens.behind(BUSY)
    server.on("GET", "/tasks/t0", tells({"message": "not yours"}, 403))
    async with by_token(server, tmp_path) as client:
        jobs = [client.job(f"t{number}") for number in range(10)]
        waiting = asyncio.create_task(client.wait_all(jobs, timeout=8))
        await eventually(lambda: server.count("/tasks/") >= 50)
        server.rest = tokens.behind(READY)
        await waiting
        assert [await job.result() for job in jobs[1:]] == [7] * 9
    assert server.count("/tasks/t0") == 2
    assert tokens.asked <= 2


async def test_a_client_that_is_not_known_ends_all_waits_with_few_requests(
    server: ThirdParty, tmp_path: Path
) -> None:
    server.on("POST", "/token", tells({"error": "invalid_client"}, 400))
    async with by_token(server, tmp_path) as client:
        jobs = [client.job(f"t{number}") for number in range(50)]
        await client.wait_all(jobs, timeout=8)
        assert len(server.asked) <= 4
        errors = await failures(jobs[:1])
        with pytest.raises(ServiceError, match="invalid_client"):
            await client.submit("any", {})
    assert "the token was refused: invalid_client" in str(errors[0])
    assert server.count("/tasks") == 0


@pytest.mark.parametrize("bad", [problem(500, "internal"), fake.reset, fake.EMPTY, their.hang])
async def test_a_token_service_in_trouble_is_waited_out(
    bad: Reply, server: ThirdParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT", 0.1)
    tokens = Tokens(server)
    server.on("POST", "/token", bad, bad, bad, tokens.give)
    server.rest = tokens.behind(READY)
    async with by_token(server, tmp_path) as client:
        jobs = [client.job(f"t{number}") for number in range(50)]
        await client.wait_all(jobs, timeout=8)
        assert await jobs[0].result() == 7
    assert tokens.asked == 4


# --- the API that a key belongs to


@pytest.fixture
def stranger() -> Iterator[ThirdParty]:
    with ThirdParty() as running:
        yield running


async def test_a_redirect_takes_no_key_to_another_origin(
    server: ThirdParty, stranger: ThirdParty, tmp_path: Path
) -> None:
    elsewhere = leads_to(lambda: f"{stranger.url}/moved")
    server.generation(1, elsewhere)
    server.script(1, elsewhere)
    server.on("GET", "/jobs", leads_to(lambda: f"{stranger.url}{server.asked[-1].path_qs}"))
    server.on("POST", "/v2/generate", leads_to(lambda: f"{stranger.url}/post", 307))
    stranger.on("GET", "/moved", done(), tells(fake.job(1, result="moved")))
    stranger.on("GET", "/jobs", page())
    headers = {"X-Gateway": "gateway-secret"}
    async with sync_so(server, headers=headers) as client:
        assert await client.job("gen-1").result(timeout=8) == film()
        with pytest.raises(ServiceError, match="307"):
            await client.submit("lipsync", {})
    async with own(server, headers=headers) as client:
        assert await client.job(job_id(1)).result(timeout=8) == "moved"
        await client.wait_all([client.job(id) for id in ids(40)], timeout=8)
    assert [request.path for request in stranger.asked] == ["/moved", "/moved", "/jobs"]
    assert all(request.headers.get("X-Gateway") == "gateway-secret" for request in server.asked)
    for request in stranger.asked:
        heard = str(dict(request.headers))
        assert KEY not in heard and "gateway-secret" not in heard


async def test_a_redirect_at_home_keeps_the_key(server: ThirdParty) -> None:
    server.generation(1, leads_to("/moved"))
    server.script(1, leads_to("/moved"))
    server.on("GET", "/moved", done(), tells(fake.job(1, result="moved")))
    async with sync_so(server) as client:
        assert await client.job("gen-1").result(timeout=8) == film()
    async with own(server) as client:
        assert await client.job(job_id(1)).result(timeout=8) == "moved"
    assert server.header("x-api-key")[:2] == [KEY, KEY]
    assert server.header("Authorization")[2:] == [f"Bearer {KEY}"] * 2


async def test_a_file_elsewhere_is_fetched_without_the_key(
    server: ThirdParty, stranger: ThirdParty, tmp_path: Path
) -> None:
    server.generation(1, tells(generation(1, outputUrl=f"{server.url}/film")))
    server.on("GET", "/film", leads_to(lambda: f"{stranger.url}/film?signature=s"))
    stranger.on("GET", "/film", fake.text(200, "a film", "video/mp4"))
    async with sync_so(server, ledger=tmp_path / "ledger") as client:
        job = client.job("gen-1")
        await job.result(timeout=8)
        path = await job.download("result", tmp_path / "film.mp4")
    assert path.read_text() == "a film"
    assert KEY not in str(dict(stranger.asked[0].headers))


async def test_a_result_at_home_that_leads_elsewhere_is_followed_without_the_key(
    server: ThirdParty, stranger: ThirdParty
) -> None:
    server.generation(1, tells(generation(1, outputUrl=f"{server.url}/result")))
    server.on("GET", "/result", leads_to(lambda: f"{stranger.url}/result"))
    stranger.on("GET", "/result", tells({"rows": 3}))
    async with sync_so(server) as client:
        assert await client.job("gen-1").result(timeout=8) == {"rows": 3}
    assert KEY not in str(dict(stranger.asked[0].headers))


async def test_the_ledger_the_reprs_and_the_errors_show_no_key(
    server: ThirdParty, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.on("POST", "/v2/generate", tells({"id": "gen-1"}, 201))
    server.generation(1, fake.reset, problem(500, "internal", KEY), tells(generation(1, "FAILED")))
    url = server.url.replace("//", f"//me:{KEY}@")
    async with sync_so(server, ledger=tmp_path / "ledger") as client:
        job = await client.submit("lipsync", {})
        with pytest.raises(JobFailed) as caught:
            await job.result(timeout=8)
        account = client.account
        parts = (client, job, account, account._signer, account._credential, job._state)
        text = shown(caught.value) + "".join(map(repr, parts))
    async with AsyncClient(url) as basic:
        text += repr(basic)
        with pytest.raises(BideError) as refused:
            await basic.job("nobody").result()
    assert KEY not in text + shown(refused.value) + caplog.text
    assert server.asked[-1].headers["Authorization"].startswith("Basic ")
