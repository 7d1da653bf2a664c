"""POST /jobs and POST /jobs/batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bide.core.jobs.record import Status
from bide.server.notifier import Subscription
from tests.integration.http.service import Service, scope

JSON = {"content-type": "application/json"}


async def test_accepted_with_location_hint_and_status_resource(service: Service) -> None:
    body = {
        "kind": "encode",
        "input": {"source": "a.mp4"},
        "priority": 5,
        "labels": {"team": "blue"},
        "runAt": "2031-01-01T00:00:00+01:00",
        "deadline": "2032-01-01T00:00:00Z",
    }
    reply = await service.call("POST", "/jobs", json=body)
    job = reply.json()
    assert reply.status == 202
    assert reply.headers["location"] == f"/jobs/{job['jobId']}"
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.headers["content-type"] == "application/json"
    assert (job["status"], job["queue"], job["priority"]) == ("PENDING", "video", 5)
    assert (job["runAt"], job["deadline"]) == ("2030-12-31T23:00:00.000Z", "2032-01-01T00:00:00.000Z")
    assert (job["labels"], job["maxAttempts"]) == ({"team": "blue"}, 3)
    assert {"progress", "eta", "result", "error", "finishedAt"} <= {
        k for k, v in job.items() if v is None
    }
    assert set(job["links"]) == {"self", "result", "cancel", "retry"}
    assert service.engine.hints == [("video", "encode")]
    # It is stored, with its input as it was sent.
    there = await service.call("GET", job["links"]["self"] + "?include=input")
    assert there.json()["input"] == {"source": "a.mp4"}


async def test_input_defaults_to_an_empty_object_and_the_queue_can_be_chosen(service: Service) -> None:
    reply = await service.call("POST", "/jobs", json={"kind": "echo", "queue": "video"})
    assert reply.status == 202
    assert reply.json()["queue"] == "video"


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'],
)
async def test_json_in_utf8_is_read(service: Service, content_type: str) -> None:
    reply = await service.call(
        "POST", "/jobs", body=b'{"kind": "echo"}', headers={"content-type": content_type}
    )
    assert reply.status == 202


async def test_the_body_may_come_in_pieces(service: Service) -> None:
    pieces = [b'{"kind": ', b'"echo"', b"}"]
    assert (await service.send(scope("POST", "/jobs", JSON), pieces)).status == 202


async def test_an_output_of_another_job_is_an_input(service: Service) -> None:
    source = await service.submit()
    job = await service.claim()
    file = service.blobs.put(source, job.fence, "clip.mp4", b"....", "video/mp4")
    await service.finish(job, files=(file,))
    good = {"kind": "thumbnail", "input": {"video": {"job": source, "name": "clip.mp4"}}}
    assert (await service.call("POST", "/jobs", json=good)).status == 202
    bad = {"kind": "thumbnail", "input": {"video": {"job": source, "name": "other.mp4"}}}
    assert (await service.call("POST", "/jobs", json=bad)).status == 422


# --- Prefer


async def test_wait_gives_the_finished_job(service: Service) -> None:
    call = asyncio.create_task(
        service.call("POST", "/jobs", json={"kind": "echo"}, headers={"Prefer": "wait=30"})
    )
    while service.notify.waiting == 0:
        await asyncio.sleep(0)
    await service.finish(await service.claim())
    reply = await call
    assert reply.status == 200
    assert reply.headers["preference-applied"] == "wait=30"
    assert reply.json()["result"] == {"ok": True}
    assert reply.headers["location"] == reply.json()["links"]["self"]
    assert "retry-after" not in reply.headers
    assert service.notify.waiting == 0


async def test_wait_that_is_over_gives_202(service: Service) -> None:
    reply = await service.call("POST", "/jobs", json={"kind": "echo"}, headers={"Prefer": "wait=0"})
    assert (reply.status, reply.headers["preference-applied"]) == (202, "wait=0")
    assert "retry-after" in reply.headers


async def test_wait_is_at_most_60_and_ends_with_the_service(service: Service) -> None:
    call = asyncio.create_task(
        service.call("POST", "/jobs", json={"kind": "echo"}, headers={"Prefer": "wait=3600"})
    )
    while service.notify.waiting == 0:
        await asyncio.sleep(0)
    service.notify.close()
    reply = await call
    assert (reply.status, reply.headers["preference-applied"]) == (202, "wait=60")


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize(("wait", "held"), [(1, 1.0), (55, 55.0), (56, 55.0), (60, 55.0), (3600, 55.0)])
async def test_a_response_is_held_at_most_55_seconds(
    service: Service, monkeypatch: pytest.MonkeyPatch, method: str, wait: int, held: float
) -> None:
    timeouts = []

    async def record(subscription: Subscription, timeout: float) -> bool:
        timeouts.append(timeout)
        service.notify.close()  # ends the wait without a sleep
        return False

    monkeypatch.setattr(Subscription, "wait", record)
    prefer = {"Prefer": f"wait={wait}"}
    if method == "POST":
        reply = await service.call("POST", "/jobs", json={"kind": "echo"}, headers=prefer)
    else:
        reply = await service.call("GET", f"/jobs/{await service.submit()}", headers=prefer)
    assert reply.headers["preference-applied"] == f"wait={min(wait, 60)}"
    (timeout,) = timeouts
    assert held - 0.5 < timeout <= held


async def test_respond_async_never_waits(service: Service) -> None:
    reply = await service.call(
        "POST", "/jobs", json={"kind": "echo"}, headers={"Prefer": "respond-async, wait=30"}
    )
    assert (reply.status, reply.headers["preference-applied"]) == (202, "respond-async")


@pytest.mark.parametrize("prefer", ["handling=lenient", "wait=soon", "wait=-1", "", ",;=,", "wait"])
async def test_unknown_preferences_are_ignored(service: Service, prefer: str) -> None:
    reply = await service.call("POST", "/jobs", json={"kind": "echo"}, headers={"Prefer": prefer})
    assert reply.status == 202
    assert "preference-applied" not in reply.headers


async def test_a_job_deleted_during_the_wait_was_still_accepted(service: Service) -> None:
    call = asyncio.create_task(
        service.call("POST", "/jobs", json={"kind": "echo"}, headers={"Prefer": "wait=30"})
    )
    while service.notify.waiting == 0:
        await asyncio.sleep(0)
    (job,) = (await service.call("GET", "/jobs")).json()["jobs"]
    await service.call("DELETE", f"/jobs/{job['jobId']}")
    assert (await call).status == 202


# --- unique values


async def test_unique_values_give_the_job_that_waits_or_runs(service: Service) -> None:
    def body(video: str, size: int = 1) -> dict[str, Any]:
        return {"kind": "preview", "input": {"video": video, "size": size}}

    first = (await service.call("POST", "/jobs", json=body("a"))).json()
    again = await service.call("POST", "/jobs", json=body("a", 2))
    assert again.json() == {**first, "replayed": True}
    assert (again.status, again.headers["idempotency-replayed"]) == (202, "true")
    batch = {"jobs": [body("a"), body("b"), body("b", 3)]}
    jobs = (await service.call("POST", "/jobs/batch", json=batch)).json()["jobs"]
    assert [job["replayed"] for job in jobs] == [True, False, True]
    assert jobs[0]["jobId"] == first["jobId"] and jobs[1]["jobId"] == jobs[2]["jobId"]
    await service.finish(await service.claim("preview"))
    ended = await service.call("POST", "/jobs", json=body("a"))
    assert (ended.status, ended.json()["jobId"], ended.json()["status"]) == (200, first["jobId"], "DONE")
    service.clock.advance(60)
    later = await service.call("POST", "/jobs", json=body("a"))
    assert (later.status, later.json()["replayed"]) == (202, False)
    assert "idempotency-replayed" not in later.headers


async def test_files_are_unique_by_their_content(service: Service) -> None:
    ids = []
    for content in (b"one", b"one", b"two"):
        form = (
            b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n{"kind": "preview"}\r\n'
            b'--x\r\nContent-Disposition: form-data; name="source"; filename="a"\r\n\r\n%s\r\n--x--\r\n'
        ) % content
        head = {"content-type": "multipart/form-data; boundary=x"}
        reply = await service.call("POST", "/jobs", body=form, headers=head)
        assert reply.status == 202, reply.body
        ids.append(reply.json()["jobId"])
    assert ids[0] == ids[1] != ids[2]


# --- Idempotency-Key


async def _with_key(service: Service, key: str, body: Any = None) -> tuple[int, Any]:
    body = body or {"kind": "echo", "input": {"value": 1}}
    reply = await service.call("POST", "/jobs", json=body, headers={"Idempotency-Key": key})
    return reply.status, reply.json()


async def test_the_same_key_and_body_give_the_first_job(service: Service) -> None:
    status, first = await _with_key(service, '"a-key"')
    assert status == 202
    before = await service.events()
    assert first["replayed"] is False
    replay = (202, {**first, "replayed": True})
    assert await _with_key(service, "a-key") == replay  # bare or quoted, the same key
    reordered = {"input": {"value": 1}, "kind": "echo"}
    assert await _with_key(service, "a-key", reordered) == replay
    assert await service.events() == before
    await service.finish(await service.claim())
    status, again = await _with_key(service, "a-key")
    assert (status, again["jobId"], again["status"]) == (200, first["jobId"], "DONE")


async def test_a_key_for_another_body_is_refused(service: Service) -> None:
    await _with_key(service, "k")
    before = await service.events()
    status, problem = await _with_key(service, "k", {"kind": "echo", "input": {"value": 2}})
    assert (status, problem["code"]) == (422, "idempotency-conflict")
    assert await service.events() == before
    # Its scope is the kind.
    other = {"kind": "encode", "input": {"source": "x"}}
    assert (await _with_key(service, "k", other))[0] == 202


async def test_the_key_of_a_deleted_job_is_gone(service: Service) -> None:
    _, first = await _with_key(service, "k")
    assert (await service.call("DELETE", f"/jobs/{first['jobId']}")).status == 204
    before = await service.events()
    status, problem = await _with_key(service, "k")
    assert (status, problem["code"]) == (410, "gone")
    assert first["jobId"] in problem["detail"] and "new key" in problem["detail"]
    other = {"kind": "echo", "input": {"value": 2}}
    assert (await _with_key(service, "k", other))[0] == 422
    batch = {"jobs": [{"kind": "echo", "input": {"value": 1}}]}
    headers = {"Idempotency-Key": "b"}
    (made,) = (await service.call("POST", "/jobs/batch", json=batch, headers=headers)).json()["jobs"]
    await service.call("DELETE", f"/jobs/{made['jobId']}")
    again = await service.call("POST", "/jobs/batch", json=batch, headers=headers)
    assert [job["status"] for job in again.json()["jobs"]] == [410]
    assert await service.events() == before + 1, "only that the second job was deleted"


async def test_a_number_beyond_floats_can_be_compared_too(service: Service) -> None:
    body = b'{"kind": "echo", "input": {"value": 1e999}}'
    headers = {**JSON, "idempotency-key": "k"}
    first = await service.call("POST", "/jobs", body=body, headers=headers)
    again = await service.call("POST", "/jobs", body=body, headers=headers)
    assert (first.status, again.status) == (202, 202)
    assert first.json()["jobId"] == again.json()["jobId"]


async def test_a_kind_can_require_a_key(service: Service) -> None:
    body = {"kind": "pay", "input": {"amount": 5}}
    reply = await service.call("POST", "/jobs", json=body)
    assert (reply.status, reply.json()["code"]) == (400, "idempotency-key-required")
    assert (await _with_key(service, "invoice-7", body))[0] == 202


@pytest.mark.parametrize("key", ["", '"', '"a', '"a"b"', "ü", "x" * 256])
async def test_bad_keys_are_refused(service: Service, key: str) -> None:
    status, problem = await _with_key(service, key)
    assert (status, problem["code"]) == (400, "malformed-request")
    assert "Idempotency-Key" in problem["detail"]
    assert await service.events() == 0


# --- batches


async def test_a_batch_answers_each_in_order(service: Service) -> None:
    jobs: list[Any] = [
        {"kind": "echo", "input": {"value": 1}},
        {"kind": "nothing"},
        {"kind": "encode", "input": {"source": 3}},
        {"kind": "echo", "priority": 2},
        "not even an object",
    ]
    reply = await service.call("POST", "/jobs/batch", json={"jobs": jobs})
    entries = reply.json()["jobs"]
    assert reply.status == 202
    assert [e.get("code") or e["status"] for e in entries] == [
        "PENDING",
        "unknown-kind",
        "invalid-input",
        "PENDING",
        "invalid-input",
    ]
    assert entries[2]["errors"][0]["pointer"] == "/input/source"
    assert entries[1]["type"] == "/problems/unknown-kind"
    assert await service.events() == 2


async def test_a_batch_with_a_key_is_taken_once(service: Service) -> None:
    body = {"jobs": [{"kind": "echo", "input": {"value": i}} for i in range(3)]}
    first = await service.call("POST", "/jobs/batch", json=body, headers={"Idempotency-Key": "b"})
    again = await service.call("POST", "/jobs/batch", json=body, headers={"Idempotency-Key": "b"})
    assert [{**job, "replayed": True} for job in first.json()["jobs"]] == again.json()["jobs"]
    assert len({j["jobId"] for j in first.json()["jobs"]}) == 3
    assert await service.events() == 3


async def test_a_batch_has_a_limit(service: Service) -> None:
    full = {"jobs": [{"kind": "echo"}] * 1000}
    assert len((await service.call("POST", "/jobs/batch", json=full)).json()["jobs"]) == 1000
    before = await service.events()
    reply = await service.call("POST", "/jobs/batch", json={"jobs": [{"kind": "echo"}] * 1001})
    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "/jobs")
    assert await service.events() == before


async def test_an_empty_batch_is_one(service: Service) -> None:
    reply = await service.call("POST", "/jobs/batch", json={"jobs": []})
    assert (reply.status, reply.json()) == (202, {"jobs": []})


async def test_what_was_accepted_can_be_claimed(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    assert (job.id, job.status) == (job_id, Status.PROCESSING)
