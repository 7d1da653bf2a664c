"""What a sender promises of a file is kept or refused: digests of parts and of wholes; a part for the only parameter."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from bide.core.wire.digest import render_digest
from tests.integration.http.service import Reply, Service, scope
from tests.integration.http.test_http_tus import TUS, begun, metadata, patch

CONTENT = b"film" * 1000
RIGHT = render_digest(hashlib.sha256(CONTENT).hexdigest())
WRONG = render_digest("00" * 32)


async def post(service: Service, name: str, digest: str, kind: str = "thumbnail") -> Reply:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="job"\r\n\r\n'
        + json.dumps({"kind": kind}).encode()
        + f'\r\n--b\r\nContent-Disposition: form-data; name="{name}"; filename="a"\r\n'.encode()
        + f"Content-Digest: {digest}\r\n\r\n".encode()
        + CONTENT
        + b"\r\n--b--\r\n"
    )
    headers = {"content-type": "multipart/form-data; boundary=b"}
    return await service.send(scope("POST", "/jobs", headers), [body])


def kept(service: Service) -> list[Path]:
    folders = (service.staging.root, service.blobs.root)
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["video", "file"])
async def test_a_part_goes_to_its_parameter_or_to_the_only_one(service: Service, name: str) -> None:
    reply = await post(service, name, RIGHT)
    assert reply.status == 202
    job = await service.call("GET", f"/jobs/{reply.json()['jobId']}?include=input")
    assert list(job.json()["input"]) == ["video"]


async def test_a_part_that_did_not_arrive_as_it_was_makes_no_job(service: Service) -> None:
    reply = await post(service, "video", WRONG)
    assert (reply.status, reply.json()["code"]) == (460, "checksum-mismatch")
    assert kept(service) == []
    assert (await service.call("GET", "/jobs")).json()["jobs"] == []


async def test_a_file_for_a_kind_that_takes_none_is_refused(service: Service) -> None:
    reply = await post(service, "file", RIGHT, kind="pay")
    assert reply.status == 422
    assert kept(service) == []


async def test_the_last_piece_may_say_what_the_whole_must_be(service: Service) -> None:
    wish = {"upload-metadata": metadata(kind="thumbnail")}
    place = await begun(service, len(CONTENT), **wish)
    first = await patch(service, place, 0, CONTENT[:100])
    assert first.status == 204 and "repr-digest" not in first.headers
    last = await patch(service, place, 100, CONTENT[100:], **{"repr-digest": RIGHT})
    assert last.status == 204 and "job-location" in last.headers
    assert last.headers["repr-digest"] == RIGHT
    again = await service.call("HEAD", place, headers=TUS)
    assert again.headers["repr-digest"] == RIGHT
    assert again.headers["job-location"] == last.headers["job-location"]


async def test_a_whole_that_is_another_makes_no_job_and_is_gone(service: Service) -> None:
    place = await begun(service, len(CONTENT), **{"upload-metadata": metadata(kind="thumbnail")})
    reply = await patch(service, place, 0, CONTENT, **{"repr-digest": WRONG})
    assert (reply.status, reply.json()["code"]) == (460, "checksum-mismatch")
    assert (await service.call("HEAD", place, headers=TUS)).status in (404, 410)
    assert kept(service) == []
    assert (await service.call("GET", "/jobs")).json()["jobs"] == []
