"""A body is sent on after 307 and 308 to the same origin, and to hosts that the description names; nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from bide.client.client import AsyncClient
from bide.core.errors import ServiceError, UploadFailed
from tests.integration.third_party import KEY, ThirdParty, sync_so
from tests.unit.fake_service import FakeService, Reply, job, problem, says

STATUSES = pytest.mark.parametrize("status", [307, 308])
ALL = pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
GENERATION = {"id": "gen-1", "status": "PENDING"}


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running


@pytest.fixture
def vendor() -> Iterator[ThirdParty]:
    with ThirdParty() as running:
        yield running


@pytest.fixture
def other() -> Iterator[ThirdParty]:
    with ThirdParty() as running:
        running.rest = says(job(1, "PENDING") | GENERATION)
        yield running


def redirects(status: int, url: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": url})

    return reply


@ALL
async def test_a_submission_to_a_service_is_not_sent_to_another_origin(
    status: int, service: FakeService, other: ThirdParty, tmp_path: Path
) -> None:
    service.on("POST", "/jobs", redirects(status, f"{other.url}/jobs"))
    (tmp_path / "film.mp4").write_bytes(b"the film")
    async with AsyncClient(service.url, KEY) as client:
        with pytest.raises(ServiceError, match=f"{status} redirect-elsewhere") as caught:
            await client.submit("add", {"secret": "input"})
        assert f"POST to {other.url}" in str(caught.value) and "--url" in str(caught.value)
        with pytest.raises(ServiceError, match="redirect-elsewhere"):
            await client.submit("add", {}, file=tmp_path / "film.mp4", progress=False)
    assert other.asked == []


@ALL
async def test_a_cancel_is_not_sent_to_another_origin(
    status: int, service: FakeService, other: ThirdParty
) -> None:
    """It has no body, but does something."""
    service.on("POST", "/jobs/1/cancel", redirects(status, f"{other.url}/jobs/1/cancel"))
    async with AsyncClient(service.url, KEY) as client:
        with pytest.raises(ServiceError, match="redirect-elsewhere"):
            await client.job("1").cancel()
    assert other.asked == []


@STATUSES
async def test_a_submission_to_a_service_follows_a_redirect_at_the_same_origin(
    status: int, service: FakeService
) -> None:
    service.on("POST", "/jobs", redirects(status, "/v2/jobs"))
    service.on("POST", "/v2/jobs", says(job(1, "PENDING")))
    async with AsyncClient(service.url, KEY) as client:
        await client.submit("add", {"a": 1})
    assert [await _json(request) for request in service.asked[1:]] == [
        {"kind": "add", "input": {"a": 1}}
    ]
    assert service.header("Authorization") == [f"Bearer {KEY}"] * 2


@STATUSES
async def test_a_submission_to_another_api_is_not_sent_to_another_origin(
    status: int, vendor: ThirdParty, other: ThirdParty
) -> None:
    vendor.on("POST", "/v2/generate", redirects(status, f"{other.url}/v2/generate"))
    async with sync_so(vendor) as client:
        with pytest.raises(ServiceError, match=f"{status} redirect-elsewhere"):
            await client.submit("", {"a": 1})
    assert other.asked == []


@STATUSES
async def test_a_submission_to_another_api_follows_a_redirect_at_the_same_origin(
    status: int, vendor: ThirdParty
) -> None:
    vendor.on("POST", "/v2/generate", redirects(status, "/v3/generate"))
    vendor.on("POST", "/v3/generate", says(GENERATION))
    async with sync_so(vendor) as client:
        submitted = await client.submit("", {"a": 1})
    assert submitted.id == "gen-1"
    assert await _json(vendor.asked[1]) == {"a": 1}
    assert vendor.asked[1].headers["x-api-key"] == KEY


async def test_hosts_that_the_description_names_get_the_body_and_the_key(
    vendor: ThirdParty, other: ThirdParty, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nauth.kind = "bearer"\nauth.hosts = ["127.0.0.1"]\n[submit]\npath = "/t"\n'
        'body = "{input}"\nid = "id"\n[ask]\npath = "/t/{id}"\n[read]\nstatus = "status"\nlive = ["PENDING"]\n'
    )
    vendor.on("POST", "/t", redirects(308, f"{other.url}/t"))
    async with AsyncClient(vendor.url, KEY, api=str(tmp_path / "mine.toml")) as client:
        assert (await client.submit("", {"a": 1})).id == "gen-1"
    assert await _json(other.asked[0]) == {"a": 1}
    assert other.asked[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_submission_to_another_api_is_not_turned_into_a_get(
    status: int, vendor: ThirdParty, other: ThirdParty
) -> None:
    vendor.on("POST", "/v2/generate", redirects(status, f"{other.url}/v2/generate"))
    async with sync_so(vendor) as client:
        with pytest.raises(ServiceError, match=str(status)):
            await client.submit("", {"a": 1})
    assert other.asked == []


@ALL
async def test_a_poll_that_is_a_post_is_not_led_to_another_origin(
    status: int, vendor: ThirdParty, other: ThirdParty, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nauth.kind = "bearer"\n[ask]\nmethod = "POST"\npath = "/t"\nbody = {id = "{id}"}\n'
        '[read]\nstatus = "status"\ndone = ["PENDING"]\n'
    )
    vendor.on("POST", "/t", redirects(status, f"{other.url}/t"))
    async with AsyncClient(vendor.url, KEY, api=str(tmp_path / "mine.toml")) as client:
        with pytest.raises(ServiceError, match="no POST to another origin"):
            await client.job("1").result(timeout=5)
    assert other.asked == []


@STATUSES
async def test_a_poll_that_is_a_post_stays_one_at_the_same_origin(
    status: int, vendor: ThirdParty, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nauth.kind = "bearer"\n[ask]\nmethod = "POST"\npath = "/t"\nbody = {id = "{id}"}\n'
        '[read]\nstatus = "status"\ndone = ["PENDING"]\n'
    )
    vendor.on("POST", "/t", redirects(status, "/v2/t"))
    vendor.on("POST", "/v2/t", says(GENERATION))
    async with AsyncClient(vendor.url, KEY, api=str(tmp_path / "mine.toml")) as client:
        await client.job("1").result(timeout=5)
    assert await _json(vendor.asked[1]) == {"id": "1"}


async def test_an_upload_is_not_sent_to_a_location_at_another_origin(
    service: FakeService, other: ThirdParty, tmp_path: Path
) -> None:
    async def begun(request: web.Request) -> web.StreamResponse:
        return web.Response(status=201, headers={"Location": f"{other.url}/files/1"})

    service.on("POST", "/files", begun)
    file = tmp_path / "film.mp4"
    file.write_bytes(bytes(20_000_000))
    async with AsyncClient(service.url, KEY) as client:
        with pytest.raises(UploadFailed, match=f"at {other.url}, and the client sends no file"):
            await client.submit("add", {}, file=file, progress=False)
    assert service.asked != [] and other.asked == []


async def test_an_upload_without_a_location_is_refused(
    service: FakeService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def begun(request: web.Request) -> web.StreamResponse:
        return web.Response(status=201)

    service.on("POST", "/files", begun, problem(403, "forbidden"))
    file = tmp_path / "film.mp4"
    file.write_bytes(bytes(20_000_000))
    async with AsyncClient(service.url, KEY) as client:
        with pytest.raises(ServiceError, match="403"):
            await client.submit("add", {}, file=file, progress=False)
    assert "The response has no usable Location header." in caplog.text


async def test_redirects_in_a_circle_end(vendor: ThirdParty) -> None:
    vendor.on("POST", "/v2/generate", redirects(308, "/v2/generate"))
    async with sync_so(vendor) as client:
        with pytest.raises(ServiceError, match="redirects the request more than 5 times"):
            await client.submit("", {"a": 1})


async def _json(request: web.Request) -> object:
    return await request.json()
