"""The signer: the hosts that get the credential, and waits while there is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from bide.client.apis import Answer, Api, Call, Denied
from bide.client.apis.form import Ask, Auth, Description, Read, Secret
from bide.client.apis.scrubber import hide, hide_in_body
from bide.client.http.signer import Signer
from bide.client.http.transport import Transport
from bide.core.errors import ServiceUnreachable
from tests.unit.fake_service import FakeService, Reply, problem

BASE = "https://api.example"
HOME = Call("GET", f"{BASE}/jobs/1", {"Accept": "application/json"})
ABROAD = Call("GET", "https://films.example/1", {"Accept": "*/*"}, authorized=False)


def described(**auth: Any) -> Api:
    form = Description(
        name="api", ask=Ask(path="/jobs/{id}"), read=Read(status="status"), auth=Auth(**auth)
    )
    return Api(form, BASE)


@pytest_asyncio.fixture
async def transport() -> AsyncIterator[Transport]:
    transport = Transport()
    yield transport
    await transport.close()


def signer(api: Api, transport: Transport, key: str = "secret-key", **headers: str) -> Signer:
    return Signer(api, api.credential(key), transport, time.time, headers)


def test_the_credential_and_the_callers_headers_go_only_where_they_are_meant_for() -> None:
    made = signer(described(kind="header", header="x-api-key"), Transport(), Team="films")
    assert made.headers(HOME) == {
        "Accept": "application/json",
        "x-api-key": "secret-key",
        "Team": "films",
    }
    assert made.headers(ABROAD) == {"Accept": "*/*"}
    assert HOME.headers == {"Accept": "application/json"}


def test_headers_that_look_the_same_are_not_mistaken_for_each_other() -> None:
    made = signer(described(kind="bearer"), Transport())
    for number in range(50):  # more than are remembered, and ids of objects come again
        call = Call("GET", BASE, {"If-None-Match": str(number)})
        assert made.headers(call)["If-None-Match"] == str(number)
        assert made.headers(call)["Authorization"] == "Bearer secret-key"


async def test_a_denied_key_is_read_again_and_is_another_only_when_it_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_KEY", "first")
    api = described(kind="bearer", secret=Secret(env="THE_KEY"))
    made = Signer(api, api.credential(), Transport(), time.time)
    assert not await made.denied(made.generation)
    monkeypatch.setenv("THE_KEY", "second")
    before = made.generation
    assert await made.denied(before)
    assert made.headers(HOME)["Authorization"] == "Bearer second"
    # Others that were denied with the first one need only try again.
    assert await made.denied(before)
    assert not await made.denied(made.generation)


async def test_without_a_credential_nothing_is_renewed() -> None:
    made = Signer(described(), None, Transport(), time.time)
    assert not made.stale
    assert not await made.denied(0)
    assert made.headers(HOME) == HOME.headers


# --- tokens


def by_token(service: FakeService) -> Api:
    return described(kind="oauth2", client_id="me", token_url=f"{service.url}/token")


def script(service: FakeService, *replies: Reply) -> None:
    service.on("POST", "/token", *replies)


def gives(token: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.02)  # so that all requests that need it wait
        return web.json_response({"access_token": token, "expires_in": 3600})

    return reply


async def test_one_fetch_is_enough_for_all(service: FakeService, transport: Transport) -> None:
    script(service, gives("t1"))
    made = signer(by_token(service), transport)
    await asyncio.gather(*(made.ready() for _ in range(50)))
    assert not made.stale
    assert made.headers(HOME)["Authorization"] == "Bearer t1"
    assert len(service.asked) == 1


async def test_those_who_waited_for_a_fetch_that_failed_fail_with_it(
    service: FakeService, transport: Transport
) -> None:
    script(service, problem(503, "unavailable"), gives("t1"))
    made = signer(by_token(service), transport)
    outcomes = await asyncio.gather(*(made.ready() for _ in range(50)), return_exceptions=True)
    assert len(service.asked) == 1
    assert all(isinstance(outcome, ServiceUnreachable) for outcome in outcomes)
    assert "no token for api: HTTP 503" in str(outcomes[0])
    await made.ready()  # a later request tries again
    assert not made.stale


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_refused_client_is_a_wrong_credential_whatever_the_status(
    status: int, service: FakeService, transport: Transport
) -> None:
    script(service, problem(status, "invalid_client"))
    made = signer(by_token(service), transport)
    outcomes = await asyncio.gather(*(made.ready() for _ in range(10)), return_exceptions=True)
    assert {getattr(outcome, "status", None) for outcome in outcomes} == {401}
    assert all(isinstance(outcome, Denied) for outcome in outcomes)
    assert len(service.asked) == 1


async def test_an_unreachable_token_service_is_reported_with_its_name(transport: Transport) -> None:
    api = described(kind="oauth2", client_id="me", token_url="http://127.0.0.1:1/token")
    with pytest.raises(
        ServiceUnreachable, match=r"no token for api: no answer from http://127\.0\.0\.1:1"
    ):
        await signer(api, transport).ready()


# --- what a refusal repeats


def test_a_refusal_that_repeats_the_key_is_cleaned_and_a_success_is_left_alone() -> None:
    made = signer(
        described(kind="bearer"), Transport(), **{"X-Gateway-Token": "gate-token", "Team": "films-team"}
    )
    body = b'{"message": "secret-key and gate-token of films-team"}'
    cleaned = made.clean(Answer(401, {}, body, BASE))
    assert cleaned.body == b'{"message": "[hidden] and [hidden] of films-team"}'
    assert made.clean(Answer(200, {}, body, BASE)).body == body


def test_a_secret_inside_another_and_a_quote_that_ends_in_a_secret_are_hidden() -> None:
    secrets = ("refresh", "refresh-two", "abc")
    assert hide("refresh-two, then refresh", secrets) == "[hidden], then [hidden]"
    assert hide('"the key refresh-…"', secrets) == '"the key [hidden]…"'
    assert hide("an abc is too short to be found for certain", secrets).startswith("an abc")
    assert hide_in_body(b"\xff refresh-two", secrets) == b"\xff [hidden]"
