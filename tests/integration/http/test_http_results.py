"""Results and files: streamed from disk, with ranges, never shown by a browser as ours."""

from __future__ import annotations

import hashlib
import json

import pytest
from msgspec import Raw

from bide.core.jobs.record import FileInfo, Job
from bide.core.jobs.state_machine import StepKept, Succeeded
from tests.integration.http.service import Service

TEXT = b"0123456789" * 20_000  # several chunks


async def _with_file(
    service: Service, name: str = "a.txt", content: bytes = TEXT, content_type: str = "text/plain"
) -> Job:
    await service.submit()
    job = await service.claim()
    file = service.blobs.put(job.id, job.fence, name, content, "text/plain")
    declared = FileInfo(file.name, content_type, file.size, file.sha256, file.blob)
    return await service.finish(job, files=(declared,))


async def _with_large_result(service: Service) -> tuple[Job, bytes]:
    await service.submit()
    job = await service.claim()
    body = json.dumps(list(range(20_000))).encode()
    file = service.blobs.put(job.id, job.fence, "result.json", body, "application/json")
    change = Succeeded(job_id=job.id, fence=job.fence, result_file=file)
    return await service.apply(change), body


async def test_a_small_result(service: Service) -> None:
    job = await service.done(result=b'{"pages": 3}')
    reply = await service.call("GET", f"/jobs/{job.id}/result")
    assert (reply.status, reply.body) == (200, b'{"pages": 3}')
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-length"] == "12"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-disposition"] == f'attachment; filename="{job.id}.json"'


async def test_a_large_result_is_only_at_its_link(service: Service) -> None:
    job, body = await _with_large_result(service)
    shown = (await service.call("GET", f"/jobs/{job.id}")).json()
    assert (shown["status"], shown["result"]) == ("DONE", None)
    reply = await service.call("GET", shown["links"]["result"])
    assert (reply.status, reply.body) == (200, body)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["etag"] == f'"{hashlib.sha256(body).hexdigest()}"'


async def test_nothing_returned_is_null(service: Service) -> None:
    await service.submit()
    job = await service.claim()
    await service.apply(Succeeded(job_id=job.id, fence=job.fence))
    reply = await service.call("GET", f"/jobs/{job.id}/result")
    assert (reply.status, reply.body) == (200, b"null")


async def _refused(service: Service, job_id: str) -> str:
    for path in ("result", "files/a.txt"):
        reply = await service.call("GET", f"/jobs/{job_id}/{path}")
        assert (reply.status, reply.json()["code"]) == (409, "no-result")
    return str(reply.json()["detail"])


async def test_no_result_yet(service: Service) -> None:
    job_id = await service.submit()
    assert "PENDING" in await _refused(service, job_id)
    await service.claim()
    assert "PROCESSING" in await _refused(service, job_id)


async def test_no_result_of_a_failed_job(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    file = service.blobs.put(job_id, job.fence, "a.txt", b"a", "text/plain")
    await service.apply(
        StepKept(job_id=job_id, fence=job.fence, name="s", result=Raw(b"1"), files=(file,))
    )
    await service.fail(job)
    assert "ERROR" in await _refused(service, job_id)


async def test_a_file_comes_as_an_attachment(service: Service) -> None:
    job = await _with_file(service)
    listed = (await service.call("GET", f"/jobs/{job.id}")).json()["files"]
    assert listed == [
        {
            "name": "a.txt",
            "contentType": "text/plain",
            "size": len(TEXT),
            "sha256": hashlib.sha256(TEXT).hexdigest(),
            "url": f"/jobs/{job.id}/files/a.txt",
        }
    ]
    reply = await service.call("GET", listed[0]["url"])
    assert (reply.status, reply.body) == (200, TEXT)
    assert reply.headers["content-type"] == "text/plain"
    assert reply.headers["content-length"] == str(len(TEXT))
    assert reply.headers["etag"] == f'"{listed[0]["sha256"]}"'
    assert reply.headers["content-disposition"] == 'attachment; filename="a.txt"'
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    "content_type",
    ["text/html", "image/svg+xml", "application/xhtml+xml", "text/xml", "application/pdf"],
)
async def test_what_a_browser_would_run_is_only_saved(service: Service, content_type: str) -> None:
    job = await _with_file(service, "a.html", b"<script>alert(1)</script>", content_type)
    for method in ("GET", "HEAD"):
        reply = await service.call(method, f"/jobs/{job.id}/files/a.html")
        assert reply.headers["content-disposition"].startswith("attachment")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("name", ['a"b; x=.txt', "ü ß.txt", "a%2Fb", "..hidden", "a;b", "100%"])
async def test_any_name_is_safe_in_the_headers(service: Service, name: str) -> None:
    job = await _with_file(service, name, b"x")
    url = (await service.call("GET", f"/jobs/{job.id}")).json()["files"][0]["url"]
    reply = await service.call("GET", url)
    assert (reply.status, reply.body) == (200, b"x")
    disposition = reply.headers["content-disposition"]
    assert disposition.startswith("attachment; filename")
    assert disposition.isascii()
    assert disposition.count('"') in (0, 2)


@pytest.mark.parametrize("content_type", ["text/plain\r\nX-Evil: 1", "", "ü/x", "nonsense"])
async def test_a_content_type_that_is_none_is_not_passed_on(service: Service, content_type: str) -> None:
    job = await _with_file(service, content_type=content_type)
    reply = await service.call("GET", f"/jobs/{job.id}/files/a.txt")
    assert reply.headers["content-type"] == "application/octet-stream"


async def test_a_file_that_there_is_not(service: Service) -> None:
    job = await _with_file(service)
    for name in ("b.txt", "..", "%2e%2e%2f%2e%2e%2fbide.db", "a.txt%00", ""):
        reply = await service.call("GET", f"/jobs/{job.id}/files/{name}")
        assert (reply.status, reply.json()["code"]) == (404, "not-found"), name


async def test_a_file_of_a_kept_step_is_there_before_the_end(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    file = service.blobs.put(job_id, job.fence, "a.txt", b"early", "text/plain")
    await service.apply(
        StepKept(job_id=job_id, fence=job.fence, name="s", result=Raw(b"1"), files=(file,))
    )
    assert (await service.call("GET", f"/jobs/{job_id}/files/a.txt")).body == b"early"


# --- conditions and ranges, the same for files and for both sorts of result


@pytest.fixture(params=["file", "large", "small"])
async def thing(service: Service, request: pytest.FixtureRequest) -> tuple[str, bytes]:
    """An address, and what is there."""
    if request.param == "file":
        job = await _with_file(service)
        return f"/jobs/{job.id}/files/a.txt", TEXT
    if request.param == "large":
        job, body = await _with_large_result(service)
        return f"/jobs/{job.id}/result", body
    job = await service.done(result=b'{"small": "result"}')
    return f"/jobs/{job.id}/result", b'{"small": "result"}'


async def test_unchanged_is_304(service: Service, thing: tuple[str, bytes]) -> None:
    url, _ = thing
    tag = (await service.call("GET", url)).headers["etag"]
    reply = await service.call("GET", url, headers={"If-None-Match": tag})
    assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", tag)
    assert (await service.call("GET", url, headers={"If-None-Match": '"other"'})).status == 200


async def test_head(service: Service, thing: tuple[str, bytes]) -> None:
    url, body = thing
    reply = await service.call("HEAD", url)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-length"] == str(len(body))
    assert reply.headers["accept-ranges"] == "bytes"


async def test_one_range(service: Service, thing: tuple[str, bytes]) -> None:
    url, body = thing
    size = len(body)
    for asked, first, last in (
        ("bytes=0-3", 0, 3),
        ("bytes=4-", 4, size - 1),
        ("bytes=-5", size - 5, size - 1),
        (f"bytes=2-{size * 2}", 2, size - 1),
        (f"bytes=-{size * 2}", 0, size - 1),
        ("Bytes = 1-1", 1, 1),
    ):
        reply = await service.call("GET", url, headers={"Range": asked})
        assert (reply.status, reply.body) == (206, body[first : last + 1]), asked
        assert reply.headers["content-range"] == f"bytes {first}-{last}/{size}"
        assert reply.headers["content-length"] == str(last + 1 - first)


async def test_ranges_that_are_none_are_ignored(service: Service, thing: tuple[str, bytes]) -> None:
    url, body = thing
    many = "bytes=" + ",".join("0-1" for _ in range(50))
    for asked in (
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-2",
        "pages=1-2",
        "bytes=0-1,x",
        many,
    ):
        reply = await service.call("GET", url, headers={"Range": asked})
        assert (reply.status, reply.body) == (200, body), asked


async def test_a_range_beyond_the_end(service: Service, thing: tuple[str, bytes]) -> None:
    url, body = thing
    for asked in (f"bytes={len(body)}-", "bytes=-0", "bytes=99999999999-"):
        reply = await service.call("GET", url, headers={"Range": asked})
        assert (reply.status, reply.json()["code"]) == (416, "range-not-satisfiable"), asked
        assert reply.headers["content-range"] == f"bytes */{len(body)}"


async def test_a_range_only_of_what_is_known(service: Service, thing: tuple[str, bytes]) -> None:
    url, body = thing
    tag = (await service.call("GET", url)).headers["etag"]
    same = await service.call("GET", url, headers={"Range": "bytes=0-0", "If-Range": tag})
    assert same.status == 206
    for other in ('"other"', f"W/{tag}", "Sat, 01 Jan 2028 00:00:00 GMT"):
        reply = await service.call("GET", url, headers={"Range": "bytes=0-0", "If-Range": other})
        assert (reply.status, reply.body) == (200, body), other
    beyond = {"Range": "bytes=99999999-", "If-Range": '"other"'}
    assert (await service.call("GET", url, headers=beyond)).status == 200


async def test_several_ranges_return_the_whole(service: Service, thing: tuple[str, bytes]) -> None:
    url, body = thing
    reply = await service.call("GET", url, headers={"Range": "bytes=0-1,-2"})
    assert (reply.status, reply.body) == (200, body)
    assert "content-range" not in reply.headers


async def test_an_empty_file(service: Service) -> None:
    job = await _with_file(service, content=b"")
    url = f"/jobs/{job.id}/files/a.txt"
    assert (await service.call("GET", url)).body == b""
    assert (await service.call("GET", url, headers={"Range": "bytes=0-"})).status == 416
