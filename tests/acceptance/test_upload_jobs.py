"""Jobs from uploads, at a served service over sockets: with SQLite and a folder, and with PostgreSQL and a bucket."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import threading
import time
import uuid
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bide import Client
from bide.client.blocking import BlockingJob
from bide.server.blobs import Signed
from bide.testing.blobs import send
from tests.servers.postgres import Postgres
from tests.servers.service import ServiceProcess
from tests.servers.swift import Swift
from tests.servers.warm import warm
from tests.waiting import until

CHUNK = 64 * 1024
BUCKET = "bide-upload-jobs"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


def ask(
    service: ServiceProcess,
    method: str,
    path: str,
    body: Any = b"",
    headers: dict[str, str] | None = None,
) -> Answer:
    """Sends bytes as they are and other values as JSON."""
    told = dict(headers or {})
    if not isinstance(body, bytes):
        body, told["Content-Type"] = json.dumps(body).encode(), "application/json"
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request(method, path, body, told)
        answer = connection.getresponse()
        data = answer.read()
        lines = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, lines, json.loads(data) if data else None)
    finally:
        connection.close()


@pytest.fixture(
    scope="module",
    params=["SQLite and a folder", pytest.param("PostgreSQL and a bucket", marks=pytest.mark.soak)],
)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    options: list[str] = []
    env: dict[str, str] = {}
    if request.param == "PostgreSQL and a bucket":
        postgres: Postgres = request.getfixturevalue("postgres")
        swift: Swift = request.getfixturevalue("swift")
        swift.make_bucket(BUCKET)
        options = ["--store", f"{postgres.url}?schema=t{uuid.uuid4().hex[:16]}"]
        options += ["--blobs", swift.url(BUCKET, uuid.uuid4().hex)]
        env = swift.environment
    process = ServiceProcess(
        tmp_path_factory.mktemp("service"), "tests.apps.uploads:app", options=options, env=env
    )
    process.start()
    yield process
    process.stop()


def begin_chunks(service: ServiceProcess, content: bytes, **more: Any) -> str:
    asked = {"name": "a.bin", "size": len(content), "chunkSize": CHUNK, **more}
    begun = ask(service, "POST", "/uploads/chunked", asked)
    assert begun.status == 201, begun.body
    return begun.headers["location"]


def put_chunk(service: ServiceProcess, place: str, content: bytes, number: int) -> Answer:
    return ask(
        service, "PUT", f"{place}/chunks/{number}", content[number * CHUNK : (number + 1) * CHUNK]
    )


def ended(service: ServiceProcess, job_id: str) -> Any:
    """The job when it has ended."""
    held = {"Prefer": "wait=20"}
    return until(
        lambda: (job := ask(service, "GET", f"/jobs/{job_id}", headers=held).body)["finishedAt"] and job,
        timeout=60,
    )


# --- the last chunk


def test_the_last_chunk_completes_the_upload(service: ServiceProcess) -> None:
    content = os.urandom(3 * CHUNK + 7)
    place = begin_chunks(service, content, kind="look")
    answers: list[Answer] = []
    senders = [
        threading.Thread(target=lambda n=n: answers.append(put_chunk(service, place, content, n)))
        for n in (3, 0, 2, 1)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    (last,) = [answer for answer in answers if answer.status != 204]
    assert (last.status, last.body["status"], last.body["size"]) == (200, "DONE", len(content))
    assert last.headers["job-location"] == f"/jobs/{last.body['jobId']}"
    job = ended(service, last.body["jobId"])
    assert job["status"] == "DONE"
    assert job["result"]["sha256"] == job["result"]["real"] == last.body["sha256"]
    # An older client still sends this request, and a client whose response was lost repeats its chunk.
    assert ask(service, "POST", f"{place}/complete").body == last.body
    assert put_chunk(service, place, content, 1).body == last.body


def test_the_last_chunk_before_a_crash_completes_the_upload(service: ServiceProcess) -> None:
    for delay in (0.0, 0.005):
        content = os.urandom(CHUNK + 1000)
        place = begin_chunks(service, content, kind="look")
        assert put_chunk(service, place, content, 0).status == 204
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            head = f"PUT {place}/chunks/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
            connection.sendall(head.encode() + content[CHUNK:])
            time.sleep(delay)  # to kill it at different moments
            service.kill()
        service.start()
        last = put_chunk(service, place, content, 1)
        assert (last.status, last.body["status"]) == (200, "DONE"), last.body
        job = ended(service, last.body["jobId"])
        assert (job["status"], job["result"]["size"]) == ("DONE", len(content))
        assert job["result"]["sha256"] == job["result"]["real"]


# --- one job per content


def send_form(service: ServiceProcess, content: bytes, name: str = "a.bin", **job: Any) -> Answer:
    parts = (
        f'--b\r\nContent-Disposition: form-data; name="job"\r\n\r\n{json.dumps(job)}\r\n'
        f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    body = parts.encode() + content + b"\r\n--b--\r\n"
    answer = ask(service, "POST", "/jobs", body, headers)
    assert answer.status in (200, 202), answer.body
    return answer


def send_upload_first(service: ServiceProcess, content: bytes, **job: Any) -> Answer:
    """Uploads the file, and submits a job that refers to it."""
    upload = ask(service, "POST", "/uploads?name=b.bin", content).body["uploadId"]
    answer = ask(service, "POST", "/jobs", {**job, "input": {"file": {"upload": upload}}})
    assert answer.status in (200, 202), answer.body
    return answer


def send_tus(service: ServiceProcess, content: bytes, **job: Any) -> Answer:
    told = ",".join(f"{name} {b64encode(value.encode()).decode()}" for name, value in job.items())
    headers = {"Upload-Metadata": told, "Upload-Length": str(len(content)), "Tus-Resumable": "1.0.0"}
    answer = ask(
        *(service, "POST", "/files", content),
        {**headers, "Content-Type": "application/offset+octet-stream"},
    )
    assert answer.status == 201, answer.body
    return answer


def send_chunks(service: ServiceProcess, content: bytes, **job: Any) -> Answer:
    place = begin_chunks(service, content, **job)
    for number in range(-(-len(content) // CHUNK)):
        answer = put_chunk(service, place, content, number)
    assert answer.status == 200, answer.body
    return answer


def send_presigned(service: ServiceProcess, content: bytes, **job: Any) -> Answer:
    asked = {"name": "c.bin", "size": len(content), "contentType": "video/mp4", **job}
    signed = ask(service, "POST", "/uploads/presign", asked).body
    send(Signed(signed["url"], signed["method"], signed["headers"]), content)
    answer = ask(service, "POST", f"/uploads/{signed['uploadId']}/complete")
    assert answer.status == 200, answer.body
    return answer


WAYS = {
    "a form": send_form,
    "an upload first": send_upload_first,
    "tus": send_tus,
    "chunks": send_chunks,
    "presigned": send_presigned,
}


def job_of(answer: Answer) -> str:
    """The id of the job, in the answer to the last request of any way."""
    if answer.body is not None:
        return str(answer.body["jobId"])
    return answer.headers["job-location"].rpartition("/")[2]


def test_the_same_content_is_the_same_job_by_every_way(service: ServiceProcess) -> None:
    content = os.urandom(CHUNK + 10)
    jobs = {way: job_of(submit(service, content, kind="once")) for way, submit in WAYS.items()}
    assert len(set(jobs.values())) == 1, jobs
    first = jobs["a form"]
    assert ended(service, first)["status"] == "DONE"
    assert job_of(send_form(service, content, kind="once")) == first, "also when it has ended"
    others = [
        send_form(service, content[1:], kind="once"),
        send_form(service, content, kind="once", input={"note": "x"}),
        send_form(service, content, kind="once_by_name"),
        send_form(service, content, kind="look"),
    ]
    assert len({first, *map(job_of, others)}) == 5


def test_the_name_counts_if_the_kind_says_so(service: ServiceProcess) -> None:
    content = os.urandom(100)
    one, again, other = (
        send_form(service, content, name, kind="once_by_name") for name in ("a", "a", "b")
    )
    assert job_of(one) == job_of(again) != job_of(other)
    asked = [
        ask(service, "POST", f"/jobs?dedupe={mode}", {"kind": "look", "input": {"file": file}})
        for mode in ("content+name", "content%2Bname")
        for file in [{"upload": ask(service, "POST", "/uploads?name=a", content).body["uploadId"]}]
    ]
    assert job_of(asked[0]) == job_of(asked[1])


def test_the_same_content_at_the_same_moment_is_one_job(service: ServiceProcess) -> None:
    content = os.urandom(CHUNK + 10)
    together = threading.Barrier(15)

    def submit(way: Any, number: int) -> str:
        # A key of its own makes no other job.
        keyed = {"idempotencyKey": f"{number}"} if way in (send_tus, send_chunks, send_presigned) else {}
        together.wait(30)
        return job_of(way(service, content, kind="once", **keyed))

    with ThreadPoolExecutor(15) as pool:
        jobs = list(pool.map(submit, [*WAYS.values()] * 3, range(15)))
    assert len(set(jobs)) == 1


def test_a_crash_forgets_no_content(service: ServiceProcess) -> None:
    content = os.urandom(1000)
    first = job_of(send_form(service, content, kind="once"))
    service.kill()
    service.start()
    assert job_of(send_tus(service, content, kind="once")) == first
    assert ended(service, first)["status"] == "DONE"


def test_the_content_of_a_cancelled_job_makes_a_new_one(service: ServiceProcess) -> None:
    content, later = os.urandom(1000), "2999-01-01T00:00:00Z"
    first = job_of(send_form(service, content, kind="once", runAt=later))
    assert ask(service, "POST", f"/jobs/{first}/cancel").status == 200
    second = job_of(send_form(service, content, kind="once", runAt=later))
    assert second != first
    assert job_of(send_chunks(service, content, kind="once")) == second
    ask(service, "POST", f"/jobs/{second}/cancel")
    assert ask(service, "POST", f"/jobs/{second}/retry").status == 202
    assert job_of(send_form(service, content, kind="once")) == second, "it can still succeed"
    assert ended(service, second)["status"] == "DONE"
    assert ask(service, "DELETE", f"/jobs/{second}").status == 204
    third = job_of(send_form(service, content, kind="once"))
    assert third not in (first, second)
    assert ended(service, third)["status"] == "DONE"


# --- replays


def is_replay(answer: Answer) -> bool:
    """Whether the header says so; the body, if there is one, says the same."""
    replayed = answer.headers.get("idempotency-replayed") == "true"
    assert answer.body is None or answer.body["replayed"] is replayed
    return replayed


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_is_marked(service: ServiceProcess, way: str) -> None:
    content = os.urandom(1000)
    first, again = (WAYS[way](service, content, kind="once") for _ in range(2))
    assert job_of(first) == job_of(again)
    assert (is_replay(first), is_replay(again)) == (False, True)
    if way == "tus":
        head = ask(service, "HEAD", again.headers["location"], headers={"Tus-Resumable": "1.0.0"})
        assert is_replay(head), "a client whose response was lost asks again"
    status = ask(service, "GET", f"/jobs/{job_of(again)}")
    assert "replayed" not in status.body and "idempotency-replayed" not in status.headers


def test_a_replay_by_a_key_is_marked(service: ServiceProcess) -> None:
    key, later = uuid.uuid4().hex, "2999-01-01T00:00:00Z"
    upload = ask(service, "POST", "/uploads", b"x").body["uploadId"]
    job = {"kind": "look", "input": {"file": {"upload": upload}}, "runAt": later}
    header = {"Idempotency-Key": key}
    one, two = (ask(service, "POST", "/jobs", job, header) for _ in range(2))
    assert (is_replay(one), is_replay(two)) == (False, True)
    batches = [ask(service, "POST", "/jobs/batch", {"jobs": [job]}, header).body for _ in range(2)]
    assert [batch["jobs"][0]["replayed"] for batch in batches] == [False, True]
    asked = {"name": "a", "size": 5, "kind": "look", "idempotencyKey": f"{key}-signed"}
    signed = [ask(service, "POST", "/uploads/presign", asked) for _ in range(2)]
    assert [answer.body["job"]["replayed"] for answer in signed] == [False, True]
    assert ["idempotency-replayed" in answer.headers for answer in signed] == [False, True]


def test_the_client_and_the_command_show_a_replay(
    service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(os.urandom(1000))
    with Client(service.url) as client:
        upload = ask(service, "POST", "/uploads", os.urandom(10)).body["uploadId"]
        given = {"file": {"upload": upload}}
        jobs = [client.submit("once", given) for _ in range(2)]
        jobs += [client.submit("once", file=path, progress=False) for _ in range(2)]
        monkeypatch.setattr("bide.client.uploads.upload_session.DIRECT", 0)  # a resumable upload
        jobs += [client.submit("once", file=path, progress=False)]
        for job in client.submit_many([{"kind": "once", "input": given}]):
            assert isinstance(job, BlockingJob)
            jobs.append(job)
        assert [job.replayed for job in jobs] == [False, True, False, True, True, True]
        assert jobs[2].result(timeout=60)["size"] == 1000
        assert not client.job(jobs[2].id).replayed
    command = [warm().program, "submit", "once", "--file", str(path), "--url", service.url]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout == f"{jobs[2].id}\n"
    assert f"job {jobs[2].id} exists already: it was submitted before" in said.stderr
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=True)
    assert (json.loads(shown.stdout)["replayed"], shown.stderr) == (True, "")


# --- the removal of inputs


def has_bytes(service: ServiceProcess, swift: Swift, upload_id: str) -> bool:
    """Whether the folder or the bucket has bytes of the upload."""
    client = swift.client()
    try:
        stored = [item["Key"] for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]
    finally:
        client.close()
    paths = [str(path) for path in service.data.rglob("*") if path.is_file()]
    return any(upload_id in name for name in stored + paths)


def test_the_input_is_removed_when_no_retry_can_need_it(
    service: ServiceProcess, swift: Swift, tmp_path: Path
) -> None:
    swift.make_bucket(BUCKET)
    go, content = tmp_path / "go", os.urandom(1000)
    upload = ask(service, "POST", "/uploads", content).body["uploadId"]
    job = {"kind": "shred", "input": {"file": {"upload": upload}, "go": str(go)}}
    first = ask(service, "POST", "/jobs", job).body["jobId"]
    other = ask(service, "POST", "/jobs", job).body["jobId"]
    assert [ended(service, job_id)["status"] for job_id in (first, other)] == ["ERROR", "ERROR"]
    assert has_bytes(service, swift, upload)
    go.touch()
    ask(service, "POST", f"/jobs/{first}/retry")
    assert ended(service, first)["status"] == "DONE"
    ask(service, "POST", f"/jobs/{other}/retry")
    done = ended(service, other)
    assert done["status"] == "DONE", "the end of the first one has left it the file"
    assert done["result"]["real"] == done["result"]["sha256"]
    service.kill()
    service.start()
    until(lambda: ask(service, "GET", f"/uploads/{upload}").status == 410, timeout=60)
    until(lambda: not has_bytes(service, swift, upload), timeout=60)
    assert ask(service, "GET", f"/jobs/{other}").body["result"] == done["result"]
