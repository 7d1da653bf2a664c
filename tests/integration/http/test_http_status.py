"""GET /jobs/{id}: the resource, its ETag, the long poll, and what can be included."""

from __future__ import annotations

import asyncio

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Child, Progress
from bide.core.jobs.state_machine import FailedForNow, Parked, Spawned, StepStarted
from bide.server.intake import Submission
from bide.server.progress import LiveProgress
from bide.server.store import NewJob
from tests.integration.http.service import Reply, Service, attempt, scope


async def test_a_running_job_shows_its_live_progress(service: Service) -> None:
    job_id = await service.submit()
    await service.claim()
    service.clock.advance(10)
    progress = Progress(percent=50.0, message="Halfway", done=5, total=10, unit="pages")
    service.progress.publish(attempt(job_id, 1), LiveProgress(7, progress, service.clock.now()))
    reply = await service.call("GET", f"/jobs/{job_id}")
    job = reply.json()
    assert reply.headers["etag"] == '"2.7"'
    assert job["progress"] == {
        "percent": 50.0,
        "message": "Halfway",
        "step": None,
        "done": 5.0,
        "total": 10.0,
        "unit": "pages",
    }
    # Ten seconds for one half: ten more for the other, and nine of them are worth waiting.
    assert job["eta"]["finishAt"] == "2030-03-17T17:47:00.000Z"
    assert reply.headers["retry-after"] == "9"


async def test_a_finished_job_needs_no_hint(service: Service) -> None:
    job = await service.done()
    reply = await service.call("GET", f"/jobs/{job.id}")
    assert reply.status == 200
    assert (reply.json()["status"], reply.json()["result"]) == ("DONE", {"ok": True})
    assert "retry-after" not in reply.headers
    assert reply.headers["etag"] == f'"{job.version}.0"'


async def test_the_error_of_a_failed_job_is_structured(service: Service) -> None:
    await service.submit()
    job = await service.fail(await service.claim())
    error = (await service.call("GET", f"/jobs/{job.id}")).json()["error"]
    assert (error["code"], error["message"], error["attempt"]) == ("BROKEN", "it broke", 1)
    assert error["retryable"] is False


async def test_unchanged_is_304_with_both_headers(service: Service) -> None:
    job_id = await service.submit()
    first = await service.call("GET", f"/jobs/{job_id}")
    tag = first.headers["etag"]
    for header in (tag, f'"0.0", {tag}', f"W/{tag}", "*"):
        same = await service.call("GET", f"/jobs/{job_id}", headers={"If-None-Match": header})
        assert (same.status, same.body) == (304, b"")
        assert same.headers["etag"] == tag
        assert same.headers["retry-after"] == first.headers["retry-after"]
    await service.claim()
    changed = await service.call("GET", f"/jobs/{job_id}", headers={"If-None-Match": tag})
    assert (changed.status, changed.headers["etag"]) == (200, '"2.0"')


async def test_head_is_get_without_a_body(service: Service) -> None:
    job_id = await service.submit()
    get = await service.call("GET", f"/jobs/{job_id}")
    head = await service.call("HEAD", f"/jobs/{job_id}")
    assert (head.status, head.headers, head.body) == (200, get.headers, b"")


async def test_unknown_and_removed_jobs(service: Service) -> None:
    for name in ("nothing", "01J" + "0" * 23, "%00", "x" * 300):
        reply = await service.call("GET", f"/jobs/{name}")
        assert (reply.status, reply.json()["code"]) == (404, "not-found")
    job_id = await service.submit()
    await service.call("DELETE", f"/jobs/{job_id}")
    for path in ("", "/result", "/files/a"):
        assert (await service.call("GET", f"/jobs/{job_id}{path}")).status == 410
    assert (await service.call("POST", f"/jobs/{job_id}/cancel")).status == 410


# --- the long poll


async def _poll(service: Service, job_id: str, **headers: str) -> asyncio.Task[Reply]:
    """A poll that has begun to wait."""
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    before = service.notify.waiting
    poll = asyncio.create_task(service.call("GET", f"/jobs/{job_id}", headers=lines))
    while service.notify.waiting == before and not poll.done():
        await asyncio.sleep(0)
    return poll


async def test_a_poll_is_held_until_the_end(service: Service) -> None:
    job_id = await service.submit()
    poll = await _poll(service, job_id, Prefer="wait=30")
    job = await service.claim()  # a change, but not the end
    await asyncio.sleep(0)
    assert not poll.done()
    await service.finish(job)
    reply = await poll
    assert (reply.status, reply.json()["status"]) == (200, "DONE")
    assert reply.headers["preference-applied"] == "wait=30"
    assert service.notify.waiting == 0


async def test_a_poll_with_an_etag_is_held_until_any_change(service: Service) -> None:
    job_id = await service.submit()
    tag = (await service.call("GET", f"/jobs/{job_id}")).headers["etag"]
    poll = await _poll(service, job_id, Prefer="wait=30", If_None_Match=tag)
    await service.claim()
    reply = await poll
    assert (reply.status, reply.json()["status"]) == (200, "PROCESSING")
    # Progress is a change too.
    poll = await _poll(service, job_id, Prefer="wait=30", If_None_Match=reply.headers["etag"])
    service.progress.publish(attempt(job_id, 1), LiveProgress(1, Progress(percent=1.0)))
    assert (await poll).headers["etag"] == '"2.1"'


async def test_a_poll_answers_at_once_when_there_is_news(service: Service) -> None:
    job = await service.done()
    assert (await service.call("GET", f"/jobs/{job.id}", headers={"Prefer": "wait=60"})).status == 200
    known = {"Prefer": "wait=60", "If-None-Match": f'"{job.version}.0"'}
    assert (await service.call("GET", f"/jobs/{job.id}", headers=known)).status == 304
    other = {"Prefer": "wait=60", "If-None-Match": '"1.0"'}
    assert (await service.call("GET", f"/jobs/{job.id}", headers=other)).status == 200


async def test_a_poll_whose_time_is_over_tells_what_is(service: Service) -> None:
    job_id = await service.submit()
    reply = await service.call("GET", f"/jobs/{job_id}", headers={"Prefer": "wait=0"})
    assert (reply.status, reply.json()["status"]) == (200, "PENDING")
    known = {"Prefer": "wait=0", "If-None-Match": '"1.0"'}
    assert (await service.call("GET", f"/jobs/{job_id}", headers=known)).status == 304


async def test_a_poll_ends_when_the_service_stops(service: Service) -> None:
    job_id = await service.submit()
    poll = await _poll(service, job_id, Prefer="wait=60")
    service.notify.close()
    assert (await poll).json()["status"] == "PENDING"
    assert (await service.call("GET", f"/jobs/{job_id}", headers={"Prefer": "wait=60"})).status == 200


async def test_a_poll_ends_when_the_caller_leaves(service: Service) -> None:
    job_id = await service.submit()
    leaves = asyncio.Event()
    request = scope("GET", f"/jobs/{job_id}", {"prefer": "wait=60"})
    poll = asyncio.create_task(service.send(request, [b""], leaves))
    while service.notify.waiting == 0:
        await asyncio.sleep(0)
    leaves.set()
    assert (await poll).status == 0  # no request got a response
    assert service.notify.waiting == 0


async def test_a_poll_hears_that_the_job_was_deleted(service: Service) -> None:
    job_id = await service.submit()
    poll = await _poll(service, job_id, Prefer="wait=60")
    await service.call("DELETE", f"/jobs/{job_id}")
    assert (await poll).status == 410


# --- include


async def test_only_spaces_around_an_included_name_are_ignored(service: Service) -> None:
    """As the pattern in openapi.json says."""
    job_id = await service.submit()
    for query, status in (("%20input%20,", 200), ("%0C", 422), ("input%09", 422), ("x", 422)):
        reply = await service.call("GET", f"/jobs/{job_id}?include={query}")
        assert reply.status == status, query


async def test_includes_are_only_there_when_asked_for(service: Service) -> None:
    job_id = await service.submit(input={"value": [1, 2]})
    assert not {"input", "attempts", "log"} & set((await service.call("GET", f"/jobs/{job_id}")).json())
    for query in ("include=input,attempts,log", "include=input&include=attempts&include=log"):
        job = (await service.call("GET", f"/jobs/{job_id}?{query}")).json()
        assert (job["input"], job["attempts"], job["log"]) == ({"value": [1, 2]}, [], [])


async def test_attempts_are_read_from_the_event_log(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    error = ErrorInfo("OCR_TIMEOUT", "page 7", True, attempt=1)
    retry_at = service.clock.now() + 5
    await service.apply(FailedForNow(job_id=job_id, fence=job.fence, error=error, retry_at=retry_at))
    service.clock.advance(5)
    await service.store.wake()
    job = await service.claim()
    await service.apply(StepStarted(job_id=job_id, fence=job.fence, name="probe"))
    attempts = (await service.call("GET", f"/jobs/{job_id}?include=attempts")).json()["attempts"]
    assert [(a["attempt"], a["fence"], a["worker"], a["outcome"]) for a in attempts] == [
        (1, 1, "worker-1", "RETRYING"),
        (2, 2, "worker-1", None),
    ]
    assert attempts[0]["error"]["code"] == "OCR_TIMEOUT"
    assert attempts[0]["endedAt"] == attempts[0]["startedAt"] == "2030-03-17T17:46:40.000Z"
    assert (attempts[1]["startedAt"], attempts[1]["endedAt"]) == ("2030-03-17T17:46:45.000Z", None)
    await service.finish(job)
    attempts = (await service.call("GET", f"/jobs/{job_id}?include=attempts")).json()["attempts"]
    assert (attempts[1]["outcome"], attempts[1]["error"]) == ("DONE", None)


async def test_a_parked_attempt_goes_on_in_the_next_entry(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    child = await service.intake.prepare(_submission(), parent=job)
    await service.store.spawn(
        Spawned(job_id=job_id, owner=job.owner, fence=job.fence, child=Child(child.job.id, "echo", "k")),
        NewJob(child.job, child.input),
    )
    await service.apply(Parked(job_id=job_id, fence=job.fence, waiting_for=(child.job.id,)))
    await service.finish(await service.claim())
    await service.claim()
    shown = (await service.call("GET", f"/jobs/{job_id}?include=attempts")).json()
    assert [(a["attempt"], a["fence"], a["outcome"]) for a in shown["attempts"]] == [
        (1, 1, "PARKED"),
        (1, 2, None),
    ]
    assert shown["children"] == [{"jobId": child.job.id, "kind": "echo", "status": "DONE"}]


def _submission() -> Submission:
    return Submission("echo")


async def test_log_lines_are_never_hidden_by_an_etag(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    await service.store.log(
        job_id, job.owner or "", job.fence, [{"message": "one"}, {"message": "two", "page": 2}]
    )
    reply = await service.call("GET", f"/jobs/{job_id}?include=log")
    lines = reply.json()["log"]
    assert [(line["message"], line["attempt"]) for line in lines] == [("one", 1), ("two", 1)]
    assert lines[1]["page"] == 2
    assert lines[0]["at"] == "2030-03-17T17:46:40.000Z"
    # The ETag stays when a line is added, so it must not turn the answer into 304.
    known = {"If-None-Match": reply.headers["etag"]}
    await service.store.log(job_id, job.owner or "", job.fence, [{"message": "three"}])
    again = await service.call("GET", f"/jobs/{job_id}?include=log", headers=known)
    assert (again.status, len(again.json()["log"])) == (200, 3)


async def test_a_long_log_shows_its_newest_lines(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    await service.store.log(
        job_id, job.owner or "", job.fence, [{"message": str(i)} for i in range(2500)]
    )
    lines = (await service.call("GET", f"/jobs/{job_id}?include=log")).json()["log"]
    assert (len(lines), lines[0]["message"], lines[-1]["message"]) == (1000, "1500", "2499")


async def test_an_unknown_include_is_named(service: Service) -> None:
    job_id = await service.submit()
    reply = await service.call("GET", f"/jobs/{job_id}?include=input,secrets")
    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "?include")
    assert "secrets" in reply.json()["detail"]


async def test_who_knows_a_later_progress_than_this_replica_is_not_led_back(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    service.progress.publish(attempt(job_id, 1), LiveProgress(3, Progress(percent=30.0)))
    for known, status, tag in (
        ('"2.3"', 304, '"2.3"'),
        ('W/"2.5", "1.0"', 304, '"2.5"'),  # from a replica that is ahead
        ('"2.2"', 200, '"2.3"'),
        ('"1.9"', 200, '"2.3"'),
        ('"3.0"', 200, '"2.3"'),
        ('"2.-5", "2.²", 2.5, "2.5', 200, '"2.3"'),
    ):
        reply = await service.call("GET", f"/jobs/{job_id}", headers={"If-None-Match": known})
        assert (reply.status, reply.headers["etag"]) == (status, tag), known
    poll = await _poll(service, job_id, Prefer="wait=30", If_None_Match='"2.5"')
    service.progress.publish(attempt(job_id, 1), LiveProgress(4, Progress(percent=40.0)))
    service.progress.publish(attempt(job_id, 1), LiveProgress(6, Progress(percent=60.0)))
    assert (await poll).headers["etag"] == '"2.6"'
    ended = await service.finish(job)
    later = {"If-None-Match": f'"{ended.version}.9"'}
    assert (await service.call("GET", f"/jobs/{job_id}", headers=later)).status == 200


async def test_progress_of_another_attempt_is_not_returned(service: Service) -> None:
    job_id = await service.submit()
    await service.claim()
    service.progress.publish(attempt(job_id, 2), LiveProgress(7, Progress(percent=70.0)))
    reply = await service.call("GET", f"/jobs/{job_id}")
    assert (reply.headers["etag"], reply.json()["progress"]) == ('"2.0"', None)


async def test_a_job_has_the_trace_of_its_submission(service: Service) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    given = await service.call("POST", "/jobs", json={"kind": "echo"}, headers=headers)
    assert given.json()["traceId"] == trace
    made = (await service.call("POST", "/jobs", json={"kind": "echo"})).json()
    assert len(made["traceId"]) == 32 and made["traceId"] != trace
    shown = (await service.call("GET", f"/jobs/{made['jobId']}")).json()
    assert shown["traceId"] == made["traceId"]
