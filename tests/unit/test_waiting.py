"""Waiting for one job and for many, on good days and on bad ones."""

from __future__ import annotations

import logging
import socket
import threading
import time
from itertools import pairwise

import pytest
from aiohttp import web

from bide.client.client import AsyncClient
from bide.client.polling.poller import HOLDS
from bide.client.timing import Timing
from bide.core.errors import (
    JobFailed,
    ServiceError,
    ServiceUnreachable,
    WaitTimeout,
)
from bide.core.wire.http import JobStatus
from tests.unit import fake_service as fake
from tests.unit.fake_service import FakeService, failed, job, job_id, problem, says

SPEED = 50.0


def quick() -> Timing:
    return Timing(SPEED)


# --- waiting


async def test_result_waits_by_long_poll_and_needs_one_request(service: FakeService) -> None:
    service.script(1, says(job(1, result={"frames": 3000})))
    async with AsyncClient(service.url) as client:
        handle = client.job(job_id(1))
        assert await handle.result() == {"frames": 3000}
        assert await handle.result() == {"frames": 3000}
        assert handle.requests == client.requests == 1
    (prefer,) = service.header("Prefer")
    assert prefer is not None and int(prefer.removeprefix("wait=")) >= 30
    assert service.header("If-None-Match") == [None]


async def test_a_held_poll_brings_the_end_when_it_comes(service: FakeService) -> None:
    ready = threading.Event()
    service.script(1, fake.held(job(1, result=7), ready))
    threading.Timer(0.05, ready.set).start()
    async with AsyncClient(service.url) as client:
        assert await client.job(job_id(1)).result(timeout=10) == 7
        assert client.requests == 1


async def test_a_large_result_is_fetched_from_its_own_address(service: FakeService) -> None:
    service.script(1, says(job(1, result=None)))
    service.on("GET", f"/jobs/{job_id(1)}/result", fake.TRUNCATED, says({"rows": [1] * 50_000}))
    async with AsyncClient(service.url, timing=quick()) as client:
        result = await client.job(job_id(1)).result()
    assert len(result["rows"]) == 50_000


async def test_a_job_without_a_result_gives_none(service: FakeService) -> None:
    service.script(1, says(job(1, result=None)))
    service.on("GET", f"/jobs/{job_id(1)}/result", problem(409, "no-result"))
    async with AsyncClient(service.url) as client:
        assert await client.job(job_id(1)).result() is None


async def test_a_failed_job_raises_its_structured_error(service: FakeService) -> None:
    service.script(1, says(failed(1)))
    async with AsyncClient(service.url) as client:
        with pytest.raises(JobFailed, match="in step text: OCR_TIMEOUT: page 7") as caught:
            await client.job(job_id(1)).result()
    assert caught.value.status == "ERROR"
    assert caught.value.error is not None
    assert caught.value.error.retryable


async def test_a_partial_success_returns_its_result_and_keeps_its_errors(service: FakeService) -> None:
    error = {"code": "PARTIAL_SUCCESS", "message": "1 part failed", "errors": [{"part": 3}]}
    service.script(1, says(job(1, "PARTIAL_SUCCESS", result=[1, 2], error=error)))
    async with AsyncClient(service.url) as client:
        handle = client.job(job_id(1))
        assert await handle.result() == [1, 2]
    assert handle.latest is not None and handle.latest.error is not None
    assert handle.latest.error.errors == [{"part": 3}]


async def test_its_own_timeout_ends_the_wait_and_not_the_job(service: FakeService) -> None:
    never = threading.Event()
    service.script(1, fake.held(job(1), never))
    async with AsyncClient(service.url) as client:
        with pytest.raises(WaitTimeout, match=r"did not end within 0\.05 s"):
            await client.job(job_id(1)).result(timeout=0.05)
    never.set()
    assert [request.method for request in service.asked] == ["GET"]


BAD_DAYS = {
    "500": problem(500, "internal"),
    "503": problem(503, "unavailable"),
    "429": problem(429, "too-many"),
    "HTML 502": fake.HTML_502,
    "truncated JSON": fake.TRUNCATED,
    "cut off": fake.cut_off,
    "empty 200": fake.EMPTY,
    "another document": says({"hello": "world"}),
    "an unknown status": says(job(1, "FROBNICATING")),
    "reset": fake.reset,
}


@pytest.mark.parametrize("name", BAD_DAYS)
async def test_a_failed_poll_backs_off_and_goes_on(name: str, service: FakeService) -> None:
    bad = BAD_DAYS[name]
    service.script(1, bad, bad, bad, says(job(1, result="at last")))
    async with AsyncClient(service.url, timing=quick()) as client:
        assert await client.job(job_id(1)).result(timeout=30) == "at last"
        assert client.requests == 4


async def test_a_refused_connection_backs_off_until_the_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with AsyncClient(url, timing=quick()) as client:
            with caplog.at_level(logging.WARNING), pytest.raises(WaitTimeout):
                await client.job(job_id(1)).result(timeout=1.0)
            assert 3 <= client.requests <= 25
            with pytest.raises(ServiceUnreachable, match="is `bide serve` running"):
                await client.submit("transcode")
    assert len(caplog.records) == 1  # logged once, not once per poll


async def test_retry_after_is_obeyed_after_a_failure(service: FakeService) -> None:
    at: list[float] = []

    async def busy(request: web.Request) -> web.StreamResponse:
        at.append(time.monotonic())
        return await problem(503, "unavailable", **{"Retry-After": "7"})(request)

    async def done(request: web.Request) -> web.StreamResponse:
        at.append(time.monotonic())
        return await says(job(1, result=1))(request)

    service.script(1, busy, done)
    async with AsyncClient(service.url, timing=quick()) as client:
        await client.job(job_id(1)).result(timeout=30)
    assert at[1] - at[0] >= 7.0 / SPEED


@pytest.mark.parametrize("status,code", [(404, "not-found"), (410, "gone"), (401, "no-key")])
async def test_a_refusal_that_no_waiting_mends_is_raised_at_once(
    status: int, code: str, service: FakeService
) -> None:
    service.script(1, problem(status, code))
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError) as caught:
            await client.job(job_id(1)).result()
        assert client.requests == 1
    assert caught.value.code == code


async def test_a_redirect_loop_ends_with_a_precise_error(service: FakeService) -> None:
    async def again(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(request.path)

    service.script(1, again)
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError, match="redirect-loop"):
            await client.job(job_id(1)).result()


async def test_a_redirect_to_nowhere_ends_with_a_precise_error(service: FakeService) -> None:
    async def nowhere(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "mailto:jobs@example.com"})

    service.script(1, nowhere)
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError, match="redirect-nowhere"):
            await client.job(job_id(1)).result()
        assert client.requests == 1


async def test_a_service_that_does_not_hold_is_asked_no_more_often_than_it_advises(
    service: FakeService,
) -> None:
    at: list[float] = []

    async def running(request: web.Request) -> web.StreamResponse:
        at.append(time.monotonic())
        if len(at) < 4:
            return await says(job(1, "PROCESSING"), **{"Retry-After": "4"})(request)
        return await says(job(1, result=1))(request)

    service.script(1, running)
    async with AsyncClient(service.url, timing=quick()) as client:
        await client.job(job_id(1)).result(timeout=30)
    assert all(later - early >= 4.0 / SPEED for early, later in pairwise(at))
    holds = [bool(value) for value in service.header("Prefer")]
    assert holds == [True, True, False, False]  # two early answers show that it does not hold


# --- changes on the way


async def test_changes_are_heard_by_etag_as_they_come(service: FakeService) -> None:
    half = job(1, "PROCESSING", progress={"percent": 50.0, "message": "Transcoding"})
    service.script(
        1,
        says(job(1, "PENDING"), '"1.0"'),
        says(half, '"2.7"'),
        fake.not_modified,
        says(job(1, result=1), '"3.9"'),
    )
    heard: list[tuple[str, float | None]] = []

    def on_change(seen: JobStatus) -> None:
        heard.append((seen.status, seen.progress.percent if seen.progress else None))

    async with AsyncClient(service.url, timing=quick()) as client:
        await client.job(job_id(1)).result(on_change=on_change)
    assert heard == [("PENDING", None), ("PROCESSING", 50.0), ("DONE", None)]
    assert service.header("If-None-Match") == [None, '"1.0"', '"2.7"', '"2.7"']
    # The first look is not held: with nothing to compare it would only come back at the end.
    assert [bool(value) for value in service.header("Prefer")] == [False, True, True, True]


async def test_status_asks_conditionally(service: FakeService) -> None:
    service.script(1, says(job(1, "PROCESSING"), '"2.7"'), fake.not_modified)
    async with AsyncClient(service.url) as client:
        handle = client.job(job_id(1))
        assert (await handle.status()).status == "PROCESSING"
        assert (await handle.status()).status == "PROCESSING"
    assert service.header("If-None-Match") == [None, '"2.7"']


# --- many


async def test_as_completed_yields_each_as_it_ends(service: FakeService) -> None:
    later = threading.Event()
    service.script(1, fake.held(job(1, result="slow"), later))
    service.script(2, says(job(2, result="quick")))
    order = []
    async with AsyncClient(service.url) as client:
        async for handle in client.as_completed([client.job(job_id(1)), client.job(job_id(2))]):
            order.append(await handle.result())
            later.set()
    assert order == ["quick", "slow"]


async def test_many_jobs_are_asked_about_in_batches(service: FakeService) -> None:
    count = 3 * HOLDS
    asked: list[int] = []

    async def reply(request: web.Request) -> web.StreamResponse:
        ids = request.query.getall("id")
        asked.append(len(ids))
        late = len(asked) < 3  # the first ones are not done at first
        jobs = [
            job(number, "PROCESSING" if late and number <= HOLDS else "DONE", result=number)
            for number in range(count)
            if job_id(number) in ids
        ]
        return web.json_response({"jobs": jobs, "next": None, "missing": []})

    service.on("GET", "/jobs", reply)
    async with AsyncClient(service.url) as client:
        handles = [client.job(job_id(number)) for number in range(count)]
        ended = await client.wait_all(handles, timeout=30)
        assert [await handle.result() for handle in ended] == list(range(count))
        assert max(asked) > HOLDS
        # One more asks for the event stream, which this service does not have.
        assert client.requests == len(asked) + 1 < 20


async def test_without_a_list_each_job_is_asked_about_alone(service: FakeService) -> None:
    count = HOLDS + 1
    for number in range(count):
        service.script(number, says(job(number, result=number)))
    async with AsyncClient(service.url) as client:
        ended = await client.wait_all([client.job(job_id(n)) for n in range(count)], timeout=30)
        assert [await handle.result() for handle in ended] == list(range(count))
        assert client.requests == count + 2  # the list and the event stream do not exist


async def test_one_unknown_job_does_not_end_the_wait_for_the_others(service: FakeService) -> None:
    service.script(1, says(job(1, result=1)))
    async with AsyncClient(service.url) as client:
        known, unknown = client.job(job_id(1)), client.job(job_id(2))
        await client.wait_all([unknown, known], timeout=5)
        assert await known.result() == 1
        with pytest.raises(ServiceError, match="not-found"):
            await unknown.result()


async def test_wait_all_names_what_has_not_ended_in_time(service: FakeService) -> None:
    never = threading.Event()
    service.script(1, says(job(1, result=1)))
    service.script(2, fake.held(job(2), never))
    async with AsyncClient(service.url) as client:
        with pytest.raises(WaitTimeout, match=job_id(2)) as caught:
            await client.wait_all([client.job(job_id(1)), client.job(job_id(2))], timeout=0.2)
    never.set()
    assert job_id(1) not in str(caught.value)


# --- submissions


async def test_a_submission_with_a_key_is_retried_and_one_without_is_not(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    accepted = says(job(1, "PENDING"))
    service.on("POST", "/jobs", fake.reset, problem(500, "internal"), accepted)
    async with AsyncClient(service.url, timing=quick()) as client:
        handle = await client.submit("transcode", idempotency_key="k")
        assert handle.id == job_id(1) and handle.requests == 1
    assert service.header("Idempotency-Key") == ['"k"'] * 3
    assert caplog.text.count("trying again") == 1  # a caller that waits learns why
    service.on("POST", "/jobs", fake.reset, accepted)
    async with AsyncClient(service.url, timing=quick()) as client:
        with pytest.raises(ServiceUnreachable):
            await client.submit("transcode")


async def test_a_batch_with_a_key_is_retried_and_one_without_is_not(service: FakeService) -> None:
    accepted = says({"jobs": [job(1, "PENDING")]})
    service.on("POST", "/jobs/batch", fake.reset, problem(500, "internal"), accepted)
    async with AsyncClient(service.url, timing=quick()) as client:
        (handle,) = await client.submit_many([{"kind": "transcode"}], idempotency_key="k")
        assert not isinstance(handle, ServiceError) and handle.id == job_id(1)
    assert service.header("Idempotency-Key") == ['"k"'] * 3
    service.on("POST", "/jobs/batch", fake.reset, accepted)
    async with AsyncClient(service.url, timing=quick()) as client:
        with pytest.raises(ServiceUnreachable):
            await client.submit_many([{"kind": "transcode"}])


async def test_requests_of_every_kind_use_the_budget(service: FakeService) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    service.script(1, says(job(1, "PROCESSING")))
    service.on("GET", "/queues", says({"queues": []}))
    service.on("POST", f"/jobs/{job_id(1)}/cancel", says(job(1, "PROCESSING")))
    began = time.monotonic()
    async with AsyncClient(service.url, limit="2/1s:1", timing=Timing(5.0)) as client:
        handle = await client.submit("transcode")
        for _ in range(3):
            await handle.status()
            await client.queues()
            await handle.cancel()
    assert len(service.asked) == 10
    assert time.monotonic() - began > 0.9 * 9 * 0.5 / 5.0


async def test_jobs_of_several_clients_are_waited_for_by_their_own(service: FakeService) -> None:
    with FakeService() as other:
        service.script(1, says(job(1, result="here")))
        other.script(1, says(job(1, result="there")))
        async with AsyncClient(service.url) as first, AsyncClient(other.url) as second:
            jobs = [first.job(job_id(1)), second.job(job_id(1))]
            ended = {handle async for handle in first.as_completed(jobs, timeout=10)}
            assert ended == set(jobs)
            assert [await one.result() for one in jobs] == ["here", "there"]
            assert (first.requests, second.requests) == (1, 1)
