"""Browser tokens: what they allow, where they are accepted, and when they end."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed

from bide.server.identities import authenticator
from bide.server.store import RecordFilter
from tests.integration.http.service import Reply, Service, kinds
from tests.integration.http.test_http_events import SSE, listen, listening
from tests.integration.http.test_http_identities import (
    TUS,
    Site,
    _anonymous,
    call,
    everything,
    path_of,
    protected,
    resources,
    site,
    submit,
)
from tests.servers.postgres import Postgres

__all__ = ["site"]
ALL = ["read", "submit", "control"]
UNKNOWN = "01" + "0" * 24


async def token_of(service: Service, key: str, **fields: Any) -> str:
    reply = await service.call("POST", "/tokens", json=fields, key=key)
    assert reply.status == 201, reply
    token: str = reply.json()["token"]
    assert token.startswith("bidet_")
    return token


@pytest.mark.parametrize("by", ["jobs", "labels"])
async def test_a_token_allows_nothing_but_its_jobs(site: Site, by: str) -> None:
    """Every operation of the table, with all scopes that a token can have."""
    service = site.service
    known = await resources(site)
    mine = await submit(site, site.a, labels={"user": "7", "team": "x"})
    other = await submit(site, site.a, labels={"user": "8", "team": "x"})
    known["jobId"].append(other)
    fields = {"jobs": [mine]} if by == "jobs" else {"labels": {"user": "7"}}
    token = await token_of(service, site.a, **fields, scopes=ALL)
    before = await everything(service)
    refused, hidden = set(), set()
    for operation in site.operations():
        if operation.scope is None:
            continue
        ids = {name: values for name, values in known.items() if f"{{{name}}}" in operation.path}
        if not operation.is_for_some_jobs:
            refused.add(operation.name)
            path = path_of(operation, **{name: values[0] for name, values in ids.items()})
            reply = await call(site, operation, path, token)
            assert reply.status == 403, (operation.name, reply)
        for name, values in ids.items() if operation.is_for_some_jobs else ():
            hidden.add(operation.name)
            absent = await call(site, operation, path_of(operation, **{name: UNKNOWN}), token)
            assert absent.status == 404, operation.name
            for value in values:
                reply = await call(site, operation, path_of(operation, **{name: value}), token)
                assert reply.status == 404, (operation.name, reply)
                assert _anonymous(reply, value) == _anonymous(absent, UNKNOWN), operation.name
    assert await everything(service) == before
    assert {"listJobs", "getStatistics", "bulkAction", "listUploads", "submitJobs"} <= refused
    assert {"listWebhooks", "getWebhook", "createToken", "listKinds", "createUpload"} <= refused
    assert {"getJob", "getJobEvents", "cancelJob", "deleteJob", "patchFile", "putChunk"} <= hidden
    assert (await service.call("GET", f"/jobs/{mine}", key=token)).status == 200
    assert (await service.call("POST", f"/jobs/{mine}/cancel", key=token)).status == 200


async def test_events_are_those_of_the_jobs_of_a_token(site: Site) -> None:
    service = site.service
    mine = await submit(site, site.a, labels={"user": "7", "team": "x"})
    other = await submit(site, site.a, labels={"user": "8", "team": "x"})

    async def heard(token: str, query: str = "") -> set[str]:
        reply = await service.call("GET", f"/events{query}", key=token)
        assert reply.status == 200, reply
        return {event["jobId"] for event in reply.json()["events"]}

    for fields in ({"jobs": [mine, UNKNOWN]}, {"labels": {"user": "7"}}):
        token = await token_of(service, site.a, **fields)
        assert await heard(token) == {mine}
        assert await heard(token, f"?id={mine}&id={other}") == {mine}
        assert await heard(token, "?label=team:x") == {mine}
        assert await heard(token, "?label=user:8") == set()
    by_jobs = await token_of(service, site.a, jobs=[mine])
    assert (await service.call("GET", f"/events?id={other}", key=by_jobs)).status == 403
    by_labels = await token_of(service, site.a, labels={"user": "7"})
    assert await heard(by_labels, f"?id={other}") == set()


async def test_a_token_uploads_the_file_of_its_job(site: Site) -> None:
    service = site.service
    begun = []
    for _ in range(2):
        wanted = {"size": 20 << 20, "kind": "thumbnail", "name": "a.mp4", "multipart": True}
        reply = await service.call("POST", "/uploads/presign", json=wanted, key=site.a)
        begun.append(reply.json())
    token = await token_of(service, site.a, jobs=[begun[0]["job"]["jobId"]], scopes=["read", "submit"])
    for upload, status in zip(begun, (200, 404), strict=True):
        path = f"/uploads/{upload['uploadId']}"
        reply = await service.call("POST", f"{path}/parts?token={token}", json={"numbers": [1]})
        assert reply.status == status
        assert (await service.call("GET", f"{path}?token={token}")).status == status


async def test_a_token_submits_jobs_with_its_labels(site: Site) -> None:
    service = site.service
    token = await token_of(service, site.a, labels={"user": "7"}, scopes=ALL)
    keyed = {"idempotency-key": "one"}

    async def post(key: str, headers: dict[str, str] | None = None, **job: Any) -> Reply:
        job = {"kind": "echo", **job}
        return await service.call("POST", "/jobs", json=job, key=key, headers=headers or {})

    made = await post(token, keyed, labels={"team": "x"})
    assert made.status == 202
    job = made.json()
    assert job["labels"] == {"user": "7", "team": "x"}
    assert (await service.call("GET", f"/jobs/{job['jobId']}", key=token)).status == 200
    again = await post(token, keyed, labels={"team": "x"})
    assert again.json()["jobId"] == job["jobId"] and again.json()["replayed"]
    # The same key of another user, and of the backend, is another key.
    other = await token_of(service, site.a, labels={"user": "8"}, scopes=ALL)
    for key in (other, site.a):
        assert (await post(key, keyed)).json()["replayed"] is False

    wrong: tuple[dict[str, Any], ...] = (
        {"labels": {"user": "8"}},
        {"priority": 1},
        {"queue": "slow"},
        {"webhook": {"url": "http://127.0.0.1:9/"}},
    )
    for more in wrong:
        assert (await post(token, **more)).status == 403, more
    by_id = await token_of(service, site.a, jobs=[job["jobId"]], scopes=ALL)
    assert (await post(by_id)).status == 403
    reader = await token_of(service, site.a, labels={"user": "7"})
    assert (await post(reader)).status == 403
    assert (await service.call("POST", f"/jobs?token={token}", json={"kind": "echo"})).status == 401


async def test_a_token_submits_no_files_and_no_jobs_of_others(site: Site) -> None:
    service = site.service
    token = await token_of(service, site.a, labels={"user": "7"}, scopes=ALL)
    other = await token_of(service, site.a, labels={"user": "8"}, scopes=ALL)
    standalone = (await service.call("POST", "/uploads", key=site.a, body=b"data")).json()["uploadId"]
    encode = {"kind": "encode", "input": {"source": "x"}, "labels": {"user": "8"}}
    theirs = (await service.call("POST", "/jobs", json=encode, key=site.a)).json()["jobId"]
    claimed = await service.claim("encode", "video")
    file = service.blobs.put(theirs, claimed.fence, "a.txt", b"data", "text/plain")
    await service.finish(claimed, files=(file,))
    for ref in (
        {"upload": standalone},
        {"upload": UNKNOWN},
        {"job": f"uploads/{standalone}", "name": "x"},
        {"job": theirs, "name": "a.txt"},
        {"job": "\0", "name": "a.txt"},
    ):
        job = {"kind": "thumbnail", "input": {"video": ref}}
        reply = await service.call("POST", "/jobs", json=job, key=token)
        assert reply.status == 422, (ref, reply)
        wanted = {
            "size": 1,
            "kind": "preview",
            "input": {"video": "x", "other": [ref]},
            "parameter": "source",
        }
        assert (await service.call("POST", "/uploads/presign", json=wanted, key=token)).status == 422
    mine = {"kind": "thumbnail", "input": {"video": {"job": theirs, "name": "a.txt"}}}
    assert (await service.call("POST", "/jobs", json=mine, key=other)).status == 202
    deep = b'{"kind": "echo", "input": {"value": ' + b"[" * 5000 + b"]" * 5000 + b"}}"
    lines = {"content-type": "application/json"}
    reply = await service.call("POST", "/jobs", body=deep, headers=lines, key=token)
    assert reply.status in (202, 400)
    # A unique job of another user is not shown.
    unique = {"kind": "preview", "input": {"video": "x"}}
    assert (await service.call("POST", "/jobs", json=unique, key=other)).status == 202
    hidden = await service.call("POST", "/jobs", json=unique, key=token)
    assert hidden.status == 403 and "jobId" not in hidden.json()


@pytest.mark.parametrize("way", ["tus", "chunked", "presigned"])
async def test_a_token_begins_uploads_that_become_its_jobs(site: Site, way: str) -> None:
    service = site.service
    token = await token_of(service, site.a, labels={"user": "7"}, scopes=ALL)
    other = await token_of(service, site.a, labels={"user": "8"}, scopes=ALL)

    async def begin(kind: str | None, **more: Any) -> Reply:
        if way != "tus":
            wanted = {"size": 3, "name": "a.mp4", **({"kind": kind} if kind else {}), **more}
            path = "/uploads/presign" if way == "presigned" else "/uploads/chunked"
            return await service.call("POST", f"{path}?token={token}", json=wanted)
        fields = {"filename": "a.mp4", **({"kind": kind} if kind else {})}
        fields |= {name: json.dumps(value) for name, value in more.items()}
        encoded = ",".join(f"{n} {base64.b64encode(v.encode()).decode()}" for n, v in fields.items())
        lines = {**TUS, "Upload-Length": "3", "Upload-Metadata": encoded}
        return await service.call("POST", f"/files?token={token}", headers=lines)

    assert (await begin(None)).status == 403  # it would be of no job
    assert (await begin("thumbnail", labels={"user": "8"})).status == 403
    begun = await begin("thumbnail", labels={"team": "x"})
    assert begun.status == 201, begun
    upload = begun.headers["location"].rpartition("/")[2]
    for key, status in ((token, 200), (other, 404), (site.a, 200), (site.b, 404)):
        assert (await service.call("GET", f"/uploads/{upload}", key=key)).status == status
    if way == "tus":
        lines = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
        path = f"/files/{upload}"
        assert (await service.call("PATCH", path, body=b"abc", headers=lines, key=other)).status == 404
        assert (await service.call("PATCH", path, body=b"abc", headers=lines, key=token)).status == 204
        for concat in ("partial", f"final;/files/{upload}"):
            lines = {**TUS, "Upload-Concat": concat}
            lines |= {"Upload-Length": "3"} if concat == "partial" else {}
            lines |= {"Upload-Metadata": f"kind {base64.b64encode(b'thumbnail').decode()}"}
            assert (await service.call("POST", "/files", headers=lines, key=token)).status == 403
    elif way == "chunked":
        path = f"/uploads/{upload}/chunks/0"
        assert (await service.call("PUT", path, body=b"abc", key=other)).status == 404
        assert (await service.call("PUT", path, body=b"abc", key=token)).status == 200
    else:
        url = begun.json()["url"].partition("//")[2].partition("/")[2]
        lines = {"content-length": "3", "content-type": begun.json()["headers"]["Content-Type"]}
        assert (await service.call("PUT", f"/{url}", body=b"abc", headers=lines)).status == 200
        assert (await service.call("POST", f"/uploads/{upload}/complete", key=other)).status == 404
        assert (await service.call("POST", f"/uploads/{upload}/complete", key=token)).status == 200
    job = (await service.call("GET", f"/uploads/{upload}", key=token)).json()["jobId"]
    shown = (await service.call("GET", f"/jobs/{job}", key=token)).json()
    assert shown["labels"] == {"user": "7", "team": "x"}
    assert (await service.call("GET", f"/jobs/{job}", key=other)).status == 404


async def test_a_token_in_a_url_is_accepted_where_pages_need_it(site: Site) -> None:
    job = await submit(site, site.a)
    token = await token_of(site.service, site.a, jobs=[job], scopes=ALL)
    accepted = set()
    for operation in site.operations():
        if operation.scope is None or operation.name == "connectWebSocket":
            continue
        path = path_of(operation, jobId=UNKNOWN, uploadId=UNKNOWN, webhookId=UNKNOWN)
        reply = await call(site, operation, f"{path}?token={token}")
        if "token" in operation.query_names:
            accepted.add(operation.name)
            assert reply.status != 401, (operation.name, reply)
            for wrong in (site.a, "", "bidet_x", f"{token}&token={token}"):
                reply = await call(site, operation, f"{path}?token={wrong}")
                assert reply.status in (401, 422), (operation.name, wrong)
        else:
            assert reply.status == 401, (operation.name, reply)
    assert accepted == {
        *("getEvents", "getJobEvents", "getJobOutput", "getResult", "getFile", "getFileOfUpload"),
        *(
            "getUpload",
            "deleteUpload",
            "putChunk",
            "getChunks",
            "completeUpload",
            "signParts",
            "getParts",
        ),
        *("headFile", "patchFile", "overrideFileMethod", "deleteFile"),
        *("createFile", "createChunkedUpload", "presignUpload"),
    }
    assert (await site.service.call("GET", f"/jobs?token={token}", key=site.a)).status == 422
    lines = {"authorization": token}
    assert (await site.service.call("GET", f"/jobs/{job}", headers=lines)).status == 401


async def test_a_token_has_a_part_of_the_scopes_of_its_key(site: Site) -> None:
    service = site.service
    key = await service.key("a", "read", "submit")
    job = await submit(site, key)

    async def make(wanted: dict[str, Any], by: str = key) -> Reply:
        return await service.call("POST", "/tokens", json=wanted, key=by)

    for scopes in (["control"], ["read", "control"]):
        assert (await make({"jobs": [job], "scopes": scopes})).status == 403
    invalid: tuple[dict[str, Any], ...] = (
        {},
        {"jobs": [job], "labels": {"a": "b"}},
        {"jobs": []},
        {"labels": {}},
        {"jobs": ["x"]},
        {"jobs": [job], "scopes": []},
        {"jobs": [job], "scopes": ["admin"]},
        {"jobs": [job], "ttl": 0},
        {"jobs": [job], "ttl": 3601},
        {"jobs": [job], "tenant": "b"},
    )
    for wrong in invalid:
        assert (await make(wrong, site.a)).status == 422, wrong
    reader = await token_of(service, key, jobs=[job])
    assert (await service.call("GET", f"/jobs/{job}", key=reader)).status == 200
    assert (await service.call("POST", f"/jobs/{job}/cancel", key=reader)).status == 403
    assert (
        await make({"jobs": [job]}, await token_of(service, key, jobs=[job], scopes=["submit"]))
    ).status == 403
    assert (await service.call("DELETE", "/session?everywhere=true", key=reader)).status == 403
    foreign = await token_of(service, site.b, jobs=[job])
    assert (await service.call("GET", f"/jobs/{job}", key=foreign)).status == 404
    assert (await service.call("GET", "/session", key=reader)).json()["scopes"] == ["read"]


async def test_a_token_ends_by_itself_and_with_its_key(site: Site) -> None:
    service, keys = site.service, site.service.parts.keys
    job = await submit(site, site.a)

    async def status(token: str) -> int:
        found = await service.call("GET", f"/jobs/{job}", key=token)
        by_url = await service.call("GET", f"/jobs/{job}/events?token={token}")
        assert found.status == by_url.status
        return found.status

    token = await token_of(service, site.a, jobs=[job], ttl=60)
    assert await status(token) == 200
    body, _, signature = token.partition(".")
    for forged in (
        f"{body}.",
        body,
        f"{body}.{signature[:-2]}AA",
        f"{body}A.{signature}",
        f"bidet_.{signature}",
        "bidet_",
        f"{token}.x",
        f"bidet_{'x' * 9000}",
    ):
        assert await status(forged) == 401, forged
    service.clock.advance(61)
    assert await status(token) == 401
    key, text = await keys.create(tenant="a", scopes=("read", "submit"))
    token = await token_of(service, text, jobs=[job])
    _, newer = await keys.rotate(key.id, 10)
    assert await status(token) == 200
    service.clock.advance(11)
    assert await status(token) == 401
    token = await token_of(service, newer, jobs=[job])
    assert await status(token) == 200
    await keys.revoke(key.id)
    assert await status(token) == 401
    _, text = await keys.create(
        tenant="a", scopes=("read", "submit"), expires_at=service.store.now() + 10
    )
    token = await token_of(service, text, jobs=[job])
    service.clock.advance(11)
    assert await status(token) == 401
    secret = (await service.store.records("identities", RecordFilter(tenant="-")))["token_secret"]
    assert secret not in token


async def test_a_stream_continues_with_a_new_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "REFRESH", 0.02)
    async with protected(tmp_path).opened() as service, listening(service) as client:
        site = Site(service, await service.key("a"), await service.key("b"))
        job, other = await submit(site, site.a), await submit(site, site.a)
        first = await token_of(service, site.a, jobs=[job], ttl=60)
        stream = listen(await client.get(f"/jobs/{job}/events?token={first}", headers=SSE))
        seen = await anext(stream)
        url = str(client._base_url).rstrip("/").replace("http", "ws") + f"/ws?token={first}"
        connect = websockets.asyncio.client.connect
        async with connect(url, proxy=None) as kept, connect(url, proxy=None) as left:
            for socket in (kept, left):
                await socket.send(json.dumps({"subscribe": {"jobs": [job, other]}}))
                told = [json.loads(await asyncio.wait_for(socket.recv(), 20)) for _ in range(2)]
                assert {one["type"] for one in told} == {"snapshot", "error"}
            second = await token_of(service, site.a, jobs=[job], ttl=600)
            await kept.send(json.dumps({"token": second}))
            await kept.send(json.dumps({"subscribe": {"filter": {"type": ["status"]}}}))
            await asyncio.wait_for(kept.recv(), 20)  # the token before it was read
            service.clock.advance(61)
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(left.recv(), 20)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
            assert [heard async for heard in stream] == []
            await service.finish(await service.claim())
            while json.loads(await asyncio.wait_for(kept.recv(), 20))["type"] != "end":
                pass
            lines = {**SSE, "Last-Event-ID": str(seen.id)}
            again = listen(await client.get(f"/jobs/{job}/events?token={second}", headers=lines))
            assert [heard.event async for heard in again][-1] in ("status", "end", "terminal")
            third = await token_of(service, site.a, jobs=[other])
            await kept.send(json.dumps({"token": third}))
            with pytest.raises(ConnectionClosed) as refused:
                while True:
                    await asyncio.wait_for(kept.recv(), 20)
            assert refused.value.rcvd is not None and refused.value.rcvd.code == 1008


async def test_a_token_of_a_session_works_on_all_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Postgres
) -> None:
    monkeypatch.setenv("BIDE_TEST_STORE", postgres.url)
    async with protected(tmp_path).opened() as one, protected(tmp_path).opened() as two:
        key = await one.key("a")
        job = await submit(Site(one, key, key), key)
        assert two.parts.authenticator is not None
        await two.parts.authenticator.refresh()
        signed = await one.call("POST", "/session", json={"key": key})
        cookie = signed.headers["set-cookie"].partition(";")[0]
        lines = {"cookie": cookie, "x-csrf-token": signed.json()["csrf"]}
        made = await one.call("POST", "/tokens", json={"jobs": [job]}, headers=lines)
        token = made.json()["token"]
        assert (await two.call("GET", f"/jobs/{job}", key=token)).status == 200
        other = await token_of(two, key, jobs=[job])
        assert (await one.call("GET", f"/jobs/{job}", key=other)).status == 200


async def test_without_authentication_there_are_no_tokens(tmp_path: Path) -> None:
    async with Service(tmp_path, kinds()).opened() as service:
        job = await service.submit()
        reply = await service.call("POST", "/tokens", json={"jobs": [job]})
        assert reply.status == 409
        assert (await service.call("GET", f"/jobs/{job}/events?token=x")).status == 200
