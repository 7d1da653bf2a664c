"""Attacks over the socket on every operation that `/openapi.json` lists, with two tenants and keys of all kinds.

Each test also compares what is stored before and after: no attack changes anything.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from bide.server.blobs.files import FileBlobs
from bide.server.blobs.local_signing import LocalSigning
from bide.server.identities import SCOPES
from bide.server.upload_record import UPLOADS
from bide.testing import ManualClock
from tests.acceptance.adversary import (
    CANARY,
    FUTURE,
    JSON,
    TUS,
    UNKNOWN,
    Operation,
    Reply,
    Target,
    start,
    statuses,
)
from tests.acceptance.forgeries import encode

EVIL = "https://evil.example"
GUESSED = "bide_4t9hq2m0xk1c_" + "x" * 43


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("adversary")
    target = start(folder)
    yield target
    target.close()
    target.service.stop()
    log = (folder / "serve.log").read_text()
    assert "Traceback" not in log
    assert not [name for name, key in target.keys.items() if key.rpartition("_")[2] in log]


@pytest.fixture
def target(served: Target) -> Iterator[Target]:
    """After each attack the service is well, and has stored nothing."""
    with served.unchanged():
        yield served
    assert served.ask("GET", "/healthz").status == 200


def own(target: Target, operation: Operation) -> str:
    """The path of an operation on a resource of tenant `a`."""
    ids = target.resources.get(operation.resource or "", [UNKNOWN])
    return operation.fill(ids[0])


def refused(reply: Reply, what: object) -> None:
    assert reply.status == 401, (what, reply)
    assert reply.headers["www-authenticate"].startswith("Bearer"), what
    assert not reply.body or reply.code == "unauthenticated", what


# --- credentials and scopes


def test_which_operations_are_public(target: Target) -> None:
    assert len(target.operations) > 60
    # putContent and putPart: the signature in the URL is the credential. Any credential has a session.
    assert {operation.name for operation in target.operations if operation.scope is None} == {
        *("getHealth", "getReadiness", "listProblems", "getProblem", "getService", "getUiFile"),
        *("getTusOptions", "putContent", "putPart", "signIn", "getSession", "signOut"),
        *("beginSignIn", "finishSignIn"),
    }
    reading = {operation.name for operation in target.operations if operation.scope == "read"}
    assert not reading & {operation.name for operation in target.operations if operation.changes}


def test_every_operation_refuses_wrong_credentials(target: Target) -> None:
    valid = target.keys["a-all"]
    session = target.ask("POST", "/session", body={"key": "bide_" + "x" * 56})
    assert session.status == 401
    values = [
        *(f"Bearer {target.keys[name]}" for name in ("expired", "revoked")),
        f"Bearer {GUESSED}",
        f"Bearer {valid[:-1]}{'x' if valid[-1] != 'x' else 'y'}",  # an id that exists
        *(f"Bearer {valid}{more}" for more in ("x", " x", ",", "\t", "%00", f", Bearer {valid}")),
        *(f"{scheme} {valid}" for scheme in ("Basic", "Token", "Digest", "Bearer:", "")),
        *("Bearer", "Bearer ", valid, f"Bearer {valid.upper()}", f"Bearer {valid[:20]}"),
        *("Bearer bidet_x.y", "Bearer session\tx", "Bearer " + "x" * 20_000),
        f"Bearer {encode({'alg': 'none'})}.{encode(target.forger.claims())}.",
    ]
    for operation in target.protected:
        path = own(target, operation)
        refused(target.call(operation, path), operation.name)
        for cookie in ("bide_session=x", f"bide_session={valid}", "bide_session="):
            refused(target.call(operation, path, headers={"Cookie": cookie}), (operation.name, cookie))
        for value in values:
            reply = target.call(operation, path, headers={"Authorization": value})
            refused(reply, (operation.name, value[:60]))


def test_every_operation_needs_its_scope(target: Target) -> None:
    for operation in target.protected:
        for scope in SCOPES:
            if scope == operation.scope:
                continue
            reply = target.call(operation, own(target, operation), scope)
            assert reply.status == 403, (operation.name, scope, reply)
            assert f'scope="{operation.scope}"' in reply.headers["www-authenticate"]
            assert not reply.body or reply.code == "forbidden"
        if operation.scope == "admin":
            assert target.call(operation, own(target, operation), "b").status == 403


def test_a_credential_in_a_url_is_accepted_for_tokens_where_pages_need_it(target: Target) -> None:
    job = target.resources["jobId"][0]
    wanted = {"jobs": [job], "scopes": ["read", "submit", "control"]}
    token = target.ask("POST", "/tokens", "a", body=wanted).json()["token"]
    for operation in target.protected:
        path = operation.fill()
        for name in ("token", "access_token", "key", "api_key", "authorization", "bearer"):
            for text in (target.keys["a-all"], token):
                if name == "token" and text == token and "token" in operation.query:
                    continue
                reply = target.call(operation, f"{path}?{name}={text}")
                refused(reply, (operation.name, name))
        for name in ("X-Api-Key", "X-Authorization", "Proxy-Authorization", "X-Auth-Token"):
            reply = target.call(operation, path, headers={name: f"Bearer {target.keys['a-all']}"})
            refused(reply, (operation.name, name))


def test_forged_tokens_get_the_same_401(target: Target) -> None:
    valid = {"Authorization": f"Bearer {target.forger.token(tenant='b')}"}
    assert target.ask("GET", "/jobs", headers=valid).status == 200
    details = set()
    for what, token in target.forger.forged():
        reply = target.ask("GET", "/jobs", headers={"Authorization": f"Bearer {token}"})
        refused(reply, what)
        details.add(reply.json()["detail"])
    assert len(details) == 1, details
    foreign = {"Authorization": f"Bearer {target.forger.token(tenant='b')}"}
    assert target.ask("GET", f"/jobs/{target.resources['jobId'][0]}", headers=foreign).status == 404


# --- other tenants


def test_resources_of_another_tenant_do_not_exist(target: Target) -> None:
    tried = set()
    for operation in target.operations:
        if operation.resource is None:
            continue
        tried.add(operation.name)
        absent = target.call(operation, operation.fill(), "b")
        # A signed URL needs no key; without its signature nothing is looked up.
        assert absent.status == (404 if operation.scope else 403), (operation.name, absent)
        for foreign in target.resources[operation.resource]:
            reply = target.call(operation, operation.fill(foreign), "b")
            assert reply.without(foreign) == absent.without(UNKNOWN), operation.name
            if operation.method == "GET":
                head = target.ask("HEAD", operation.fill(foreign), "b", TUS)
                assert head.status == absent.status, operation.name
    assert len(tried) > 25
    for gone in (f"/jobs/{target.resources['jobId'][2]}", f"/uploads/{target.resources['uploadId'][5]}"):
        assert target.ask("GET", gone, "a").status == 410


def test_lists_show_nothing_of_another_tenant(target: Target) -> None:
    ids = [found for known in target.resources.values() for found in known]
    filters = {
        "listJobs": [
            *(f"?q={CANARY[:-1]}", f"?label=owner:{CANARY[:-1]}", "?status=DONE&include=input,log"),
            "?count=true&" + "&".join(f"id={found}" for found in target.resources["jobId"]),
        ],
        "getEvents": ["?" + "&".join(f"id={found}" for found in target.resources["jobId"]), "?after=0"],
    }
    seen = 0
    for operation in target.protected:
        if operation.resource is None and operation.method == "GET" and operation.scope != "admin":
            for query in ("", *filters.get(operation.name, ())):
                reply = target.ask("GET", operation.fill() + query, "b")
                assert reply.status < 500
                shown = [found for found in ids if found.encode() in reply.body]
                missing = reply.json().get("missing") if "id=" in query and shown else shown
                assert shown == missing, (operation.name, query, reply)
                seen += 1
    assert seen > 10


def test_ids_of_another_tenant_in_bodies_do_not_exist(target: Target) -> None:
    job, upload = target.resources["jobId"][1], target.resources["uploadId"][4]

    def answers(path: str, key: str, text: str) -> tuple[int, dict[str, str], object]:
        body = json.loads(text.replace("$", key))
        return target.ask("POST", path, "b", body=body).without(key)

    for path, text, of in (
        ("/jobs", '{"kind": "measure", "input": {"source": {"upload": "$"}}}', upload),
        ("/jobs", '{"kind": "measure", "input": {"source": {"job": "$", "name": "a.txt"}}}', job),
        ("/bulk", '{"action": "cancel", "filter": {"id": ["$"]}, "dryRun": true}', job),
        ("/bulk", '{"action": "delete", "filter": {"id": ["$"]}, "confirm": 1}', job),
        (
            "/uploads/presign",
            '{"size": 1, "kind": "measure", "parameter": "source", "input": {"pages": [{"upload": "$"}]}}',
            upload,
        ),
    ):
        found, absent = answers(path, of, text), answers(path, UNKNOWN, text)
        assert found == absent, path
        assert found[0] in (200, 409, 412, 422), found
    # A final upload of tus from parts of another tenant.
    for part in (target.resources["uploadId"][0], UNKNOWN):
        lines = {"Tus-Resumable": "1.0.0", "Upload-Concat": f"final;/files/{part}"}
        reply = target.ask("POST", "/files", "b", headers=lines)
        assert reply.status in (404, 422), reply


def test_times_do_not_tell_whether_a_resource_of_another_tenant_exists(target: Target) -> None:
    """Medians of requests in turn. The best of some rounds counts, because the machine is busy."""

    def ratio(operation: Operation, foreign: str) -> float:
        took: dict[str, list[float]] = {foreign: [], UNKNOWN: []}
        for _ in range(25):
            for name, times in took.items():
                path = operation.fill(name)
                begin = time.perf_counter()
                target.call(operation, path, "b")
                times.append(time.perf_counter() - begin)
        medians = sorted(map(statistics.median, took.values()))
        return medians[1] / medians[0]

    for name in ("getJob", "cancelJob", "getUpload", "headFile", "getWebhook"):
        (operation,) = (found for found in target.operations if found.name == name)
        foreign = target.resources[operation.resource or ""][0]
        assert any(ratio(operation, foreign) < 1.5 for _ in range(5)), name


# --- browsers


def test_every_change_by_a_session_needs_its_csrf_token(served: Target) -> None:
    def sign_in() -> tuple[str, str]:
        reply = served.ask("POST", "/session", body={"key": served.keys["a-all"]})
        assert reply.status == 200 and "HttpOnly; SameSite=Lax" in reply.headers["set-cookie"]
        return reply.headers["set-cookie"].partition(";")[0], reply.json()["csrf"]

    cookie, token = sign_in()
    _, other = sign_in()
    with served.unchanged():
        assert served.ask("GET", "/jobs", "a", {"Cookie": cookie}).status == 200
        for operation in served.operations:
            if not operation.changes or operation.name in ("putContent", "putPart", "signIn"):
                continue
            path = own(served, operation)
            wrong: list[tuple[str, dict[str, str]]] = [
                ("", {}),
                ("", {"X-CSRF-Token": ""}),
                ("", {"X-CSRF-Token": other}),
                ("", {"X-CSRF-Token": token, "Origin": EVIL}),
                ("", {"X-CSRF-Token": token, "Origin": "null"}),
                ("", {"X-CSRF-Token": token, "Sec-Fetch-Site": "cross-site"}),
                (f"?csrf={token}", {}),
                (f"?X-CSRF-Token={token}", {"X-CSRF-Token": f"{token}, {token}"}),
            ]
            for query, lines in wrong:
                reply = served.call(operation, path + query, headers={"Cookie": cookie, **lines})
                unknown = [422] if query and operation.scope is None else []  # a parameter
                assert reply.status in (401, 403, *unknown), (operation.name, lines, reply)
        # A page of another site reads nothing with the cookie, either.
        lines = {"Cookie": cookie, "Origin": EVIL}
        reply = served.ask("GET", "/session", headers=lines)
        assert reply.status == 401 and "access-control-allow-origin" not in reply.headers
        assert served.ask("GET", "/session", headers={"Cookie": cookie}).json()["csrf"] == token


def test_every_change_from_a_page_of_another_origin_is_refused(target: Target) -> None:
    port = target.service.port
    origins = [
        *(EVIL, "null", "", f"http://127.0.0.1:{port + 1}", "http://127.0.0.1"),
        *(f"http://127.0.0.1:{port}.evil.example", f"http://evil.example#127.0.0.1:{port}"),
        f"http://127.0.0.1:{port}@evil.example",
    ]
    for operation in target.operations:
        if not operation.changes:
            continue
        for origin in origins:
            reply = target.call(operation, own(target, operation), "a-all", {"Origin": origin})
            assert (reply.status, reply.code) == (403, "cross-site"), (operation.name, origin)


def test_other_hosts_are_not_answered(target: Target) -> None:
    key = {"Authorization": f"Bearer {target.keys['a-all']}"}
    hosts = ["evil.example", f"127.0.0.1.evil.example:{target.service.port}", "127.0.0.2", "0.0.0.0"]
    for operation in target.operations:
        if operation.name in ("getHealth", "getReadiness"):  # a probe
            continue
        for host in hosts:
            reply = target.call(
                operation,
                own(target, operation),
                headers={**key, "Host": host, "X-Forwarded-Host": "localhost"},
            )
            assert reply.status == 400, (operation.name, host)
            assert not reply.body or reply.code == "untrusted-host"


def test_forwarded_headers_of_others_count_for_nothing(served: Target) -> None:
    spoofed = {
        "X-Forwarded-For": "6.6.6.6",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Prefix": "/evil",
        "Forwarded": "for=6.6.6.6;host=evil.example;proto=https",
        "X-Real-IP": "6.6.6.6",
        "X-Original-URL": "/keys",
        "X-Rewrite-URL": "/keys",
    }
    made = served.ask("POST", "/uploads/presign", "b", spoofed, {"size": 1})
    assert made.status == 201 and b"evil" not in made.body + str(made.headers).encode()
    assert made.json()["url"].startswith(f"http://127.0.0.1:{served.service.port}/uploads/")
    assert served.ask("DELETE", f"/uploads/{made.json()['uploadId']}", "b", spoofed).status == 204
    signed_in = served.ask("POST", "/session", headers=spoofed, body={"key": served.keys["b"]})
    assert (
        "Secure" not in signed_in.headers["set-cookie"] and "Path=/;" in signed_in.headers["set-cookie"]
    )
    for method in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"):
        reply = served.ask("GET", f"/jobs/{served.resources['jobId'][0]}", "a", {method: "DELETE"})
        assert reply.status == 200
    end = time.monotonic() + 30
    while b"presignUpload" not in (audit := served.ask("GET", "/audit", "admin")).body:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert b"6.6.6.6" not in audit.body
    served.settle()


# --- requests that are read in two ways


def smuggling(target: Target) -> Iterator[tuple[str, bytes]]:
    """Requests whose end is ambiguous, before a request that would submit a job."""
    host = b"Host: localhost\r\n"
    job = json.dumps({"kind": "echo", "runAt": FUTURE, "labels": {"by": "smuggling"}}).encode()
    lines = f"Authorization: Bearer {target.keys['b']}\r\nContent-Type: application/json\r\n".encode()
    inner = b"POST /jobs HTTP/1.1\r\n" + host + lines
    inner += b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(job) + job
    post = b"POST /session HTTP/1.1\r\n" + host
    length = b"Content-Length: %d\r\n" % (len(inner) + 5)
    end = (
        b"\r\n0\r\n\r\n" + inner
    )  # without a body for those who read chunks, and with one for the others
    chunked = b"Transfer-Encoding: chunked"
    framings = {
        "CL.TE": length + chunked,
        "TE.CL": chunked + b"\r\n" + length.strip(),
        "CL 0 and TE": b"Content-Length: 0\r\n" + chunked,
        "a space before the colon": length + b"Transfer-Encoding : chunked",
        "a tab before the colon": length + b"Transfer-Encoding\t: chunked",
        "a fold": length + b"Transfer-Encoding:\r\n chunked",
        "a fold before the colon": length + b"Transfer-Encoding\r\n : chunked",
        "a bare LF": length + b"X-A: a\nTransfer-Encoding: chunked",
        "a bare CR": length + b"X-A: a\rTransfer-Encoding: chunked",
        "a NUL in the value": length + b"Transfer-Encoding: chunked\0",
        "a NUL in the name": length + b"Transfer-Encoding\0: chunked",
        "vertical tab": length + b"Transfer-Encoding: \x0bchunked",
        "another coding": length + b"Transfer-Encoding: xchunked",
        "two codings": length + b"Transfer-Encoding: chunked, identity",
        "codings in two lines": length + b"Transfer-Encoding: identity\r\n" + chunked,
        "quoted": length + b'Transfer-Encoding: "chunked"',
        "two lengths": b"Content-Length: 0\r\n" + length.strip(),
        "two lengths in one line": b"Content-Length: 0, %d" % (len(inner) + 5),
        "the same length twice": length + length.strip(),
        "a length with a sign": b"Content-Length: +0",
        "a hexadecimal length": b"Content-Length: 0x0",
        "a length with a space": b"Content-Length: 0 0",
        "a negative length": b"Content-Length: -1",
        "an empty length": b"Content-Length:",
        "a huge length": b"Content-Length: 18446744073709551616",
        "no colon": length + b"Transfer-Encoding chunked",
        "a line that begins with a space": b" X: a\r\n" + length.strip(),
    }
    for name, framing in framings.items():
        yield name, post + framing + b"\r\n" + end
    for name, size in (
        ("a chunk size with a sign", b"+0"),
        ("a hexadecimal chunk size", b"0x0"),
        ("a negative chunk size", b"-1"),
        ("no chunk size", b""),
        ("a bare LF behind a chunk size", b"0\n"),
        ("a NUL in a chunk size", b"0\0"),
        ("a huge chunk size", b"1" + b"0" * 16),
        ("a bare CR in an extension", b"0;a\rb"),
    ):
        yield name, post + chunked + b"\r\n\r\n" + size + b"\r\n\r\n" + inner
    yield "HTTP/1.0 with chunks", post.replace(b"1.1", b"1.0") + chunked + b"\r\n\r\n0\r\n\r\n" + inner
    yield "LF only", (post + length).replace(b"\r\n", b"\n") + b"\n" + b"x" * 5 + inner


def test_ambiguous_requests_are_not_read_as_two(target: Target) -> None:
    for name, request in smuggling(target):
        answer = target.raw(request)
        assert 202 not in statuses(answer), (name, answer[:300])
        assert len(statuses(answer)) <= 1 and not {*statuses(answer)} - {400, 401, 408, 413, 422, 431}, (
            name,
            answer[:300],
        )
    assert target.ask("GET", "/jobs?label=by:smuggling", "b").json()["jobs"] == []


def test_a_credential_in_an_odd_header_line_is_none(target: Target) -> None:
    key = target.keys["a-all"].encode()
    good = b"Authorization: Bearer " + key
    for name, lines in {
        "two of them": good + b"\r\n" + good,
        "a wrong one before": b"Authorization: Bearer x\r\n" + good,
        "a wrong one behind": good + b"\r\nAuthorization: Bearer x",
        "an empty one behind": good + b"\r\nAuthorization:",
        "another scheme behind": good + b"\r\nAuthorization: Basic eDp5",
        "a fold": b"Authorization: Bearer\r\n " + key,
        "a folded line": b"X-A: a\r\n " + good,
        "a space before the colon": b"Authorization : Bearer " + key,
        "a NUL": b"Authorization: Bearer " + key + b"\0",
        "a NUL in the name": b"Authorization\0: Bearer " + key,
        "a bare CR": b"X-A: a\r" + good,
        "an underscore": b"Authorization_: Bearer " + key,
        "no colon": b"Authorization Bearer " + key,
        "a leading space": b" " + good,
    }.items():
        request = b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\nConnection: close\r\n\r\n"
        answer = target.raw(request)
        assert set(statuses(answer)) <= {400, 401}, (name, answer[:300])
        assert CANARY.encode() not in answer, name


# --- oversized


def test_oversized_requests_are_refused(target: Target) -> None:
    key = f"Authorization: Bearer {target.keys['b']}\r\n".encode()
    head = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + key
    job = b"Content-Type: application/json\r\n"
    many = b"&".join(b"a%d=1" % number for number in range(300))
    deep = b'{"kind": "echo", "input": {"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    large = b'{"kind": "echo", "input": {"value": "' + b"x" * (2 << 20) + b'"}}'
    digits = b'{"kind": "echo", "priority": ' + b"9" * 100_000 + b"}"
    name = b'{"kind": "' + b"k" * 100_000 + b'"}'
    labels = b'{"kind": "echo", "labels": {' + b",".join(b'"%d": "x"' % n for n in range(500)) + b"}}"
    batch = b'{"jobs": [' + b",".join([b"1"] * 2000) + b"]}"

    def post(path: bytes, body: bytes) -> bytes:
        return b"POST " + path + head + job + b"Content-Length: %d\r\n\r\n" % len(body) + body

    cases: dict[str, tuple[bytes, set[int]]] = {
        "path": (b"GET /jobs/" + b"x" * 100_000 + head + b"\r\n", {431}),
        "query": (b"GET /jobs?q=" + b"x" * 100_000 + head + b"\r\n", {431}),
        "parameters": (b"GET /jobs?" + many + head + b"\r\n", {400}),
        "segments": (b"GET " + b"/jobs" * 3000 + head + b"\r\n", {404}),
        "method": (b"X" * 5000 + b" /jobs" + head + b"\r\n", {400, 405, 501}),
        "header": (b"GET /jobs" + head + b"X-A: " + b"x" * 100_000 + b"\r\n\r\n", {431}),
        "name of a header": (b"GET /jobs" + head + b"x" * 100_000 + b": x\r\n\r\n", {431}),
        "headers": (b"GET /jobs" + head + b"X-A: a\r\n" * 500 + b"\r\n", {431}),
        "cookies": (b"GET /jobs" + head + b"Cookie: " + b"a=b; " * 10_000 + b"\r\n\r\n", {431}),
        "idempotency key": (
            b"POST /jobs"
            + head
            + job
            + b"Idempotency-Key: "
            + b"x" * 5000
            + b"\r\nContent-Length: 0\r\n\r\n",
            {400, 422},
        ),
        "range": (b"GET /jobs" + head + b"Range: bytes=" + b"0-1," * 2000 + b"\r\n\r\n", {200, 400}),
        "body": (post(b"/jobs", large), {413}),
        "depth": (post(b"/jobs", deep), {400, 422}),
        "number": (post(b"/jobs", digits), {400, 422}),
        "kind": (post(b"/jobs", name), {404, 422}),
        "labels": (post(b"/jobs", labels), {422}),
        "batch": (post(b"/jobs/batch", batch), {422}),
        "upload": (post(b"/uploads/presign", b'{"size": 1' + b"0" * 30 + b"}"), {400, 413, 422}),
        "token": (post(b"/tokens", b'{"jobs": [' + b",".join([b'"x"'] * 5000) + b"]}"), {422}),
    }
    for what, (request, expected) in cases.items():
        answer = target.raw(request)
        found = statuses(answer)
        assert len(found) == 1 and found[0] in expected, (what, answer[:300])
        assert len(answer) < 40_000, what


# --- paths


def test_no_form_of_a_path_leads_to_more(target: Target) -> None:
    """Without a key, and with that of another tenant, for what a proxy and the service could read differently."""
    job = target.resources["jobId"][1]
    done = f"/jobs/{job}"
    paths = [
        *(f"/{done}", f"//{done}", f"/.{done}", f"/./{done[1:]}", f"/x/..{done}", f"/healthz/..{done}"),
        *(f"/jobs//{job}", f"/jobs/./{job}", f"/jobs/x/../{job}", f"/jobs/{job}/.", f"/jobs/{job}/x/.."),
        *(
            f"/%2e{done}",
            f"/x/%2e%2e{done}",
            f"/ui/%2e%2e{done}",
            f"/ui/..%2f{done[1:]}",
            f"/jobs%2f{job}",
        ),
        *(f"/jobs/%2e%2e/jobs/{job}", f"/jobs/..%5c{job}", f"/jobs\\{job}", f"/healthz;{done}"),
        *(
            f"{done};x",
            f"{done};/healthz",
            f"{done}.",
            f"{done}%00",
            f"{done}%00.js",
            f"{done}%20",
            f"{done}%0a",
        ),
        *(
            f"/JOBS/{job}",
            f"/Jobs/{job}",
            f"/jobs/{job.lower()}",
            f"/jobs/{quote(quote(job[0], safe=''))}{job[1:]}",
        ),
        *(
            f"/jobs/%{ord(job[0]):02x}{job[1:]}",
            f"/%6aobs/{job}",
            f"{done}/",
            f"{done}//",
            f"{done}?",
            f"{done}#x",
        ),
        *(f"http://localhost{done}", f"{done}/result", f"{done}/result/", f"{done}/files/a.txt"),
        *(
            f"{done}/files/..%2f..%2fbide.db",
            f"{done}/files/%2e%2e/%2e%2e/bide.db",
            f"{done}/files/../result",
        ),
        *("/ui/../keys", "/ui/%2e%2e/keys", "/ui/..%2fkeys", "/healthz/../keys", "/healthz%2f..%2fkeys"),
        *(
            "/ui/..%2f..%2f..%2f..%2fetc%2fpasswd",
            "/ui/%2fetc%2fpasswd",
            "/ui/bide.js%00.html",
            "/ui/./x",
        ),
        *(
            "/problems/..%2f..%2fkeys",
            "/problems/%2e%2e",
            "/readyz/../metrics",
            "/metrics/",
            "/%6detrics",
        ),
        *("/keys/", "//keys", "/keys;a=b", "/keys%3f", "/.well-known/../keys", "/%2fkeys", "/keys/%2e"),
    ]
    for path in paths:
        for key in (None, "b"):
            line = "" if key is None else f"Authorization: Bearer {target.keys[key]}\r\n"
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{line}\r\n"
            answer = target.raw(request.encode())
            (status,) = statuses(answer)
            assert status in (400, 401, 403, 404, 405), (path, key, answer[:200])
            assert CANARY.encode() not in answer and b"root:" not in answer, path


# --- signatures


def test_a_signed_url_is_for_one_file_once(served: Target) -> None:
    blobs = FileBlobs(next(served.service.data.rglob(".secret")).parent)
    wanted = {"size": 3, "contentType": "text/plain", "name": "b.txt"}
    signed = served.ask("POST", "/uploads/presign", "b", body=wanted).json()
    url = signed["url"].partition(f":{served.service.port}")[2]
    theirs = served.resources["uploadId"][3]

    def put(path: str, body: bytes = b"new", method: str = "PUT", **lines: str) -> Reply:
        return served.ask(method, path, headers={"Content-Type": "text/plain", **lines}, body=body)

    with served.unchanged():
        path, _, query = url.partition("?")
        changed = [
            *(path, f"{path}?", f"{path}?{query}&size=3", url.replace("size=3", "size=4")),
            *(url.replace("expires=", "expires=9"), url.replace(signed["uploadId"], theirs)),
            *(url.replace("text%2Fplain", "text%2Fhtml"), url[:-1], url + "0", url.upper()),
            *(re.sub("signature=.*", f"signature={end}", url) for end in ("", "0" * 64, "%00")),
            url.replace("/content", "/parts/1"),
            f"{path}?{query}&multipart=x",
        ]
        for wrong in changed:
            assert put(wrong).status in (403, 404, 405, 422), wrong
        for body, more in (
            (b"newer", {}),
            (b"ne", {}),
            (b"", {}),
            (b"new", {"Content-Type": "text/html"}),
            (b"new", {"Origin": EVIL}),
        ):
            assert put(url, body, **more).status in (403, 422), (body, more)
        for method in ("POST", "PATCH", "DELETE", "GET"):
            assert put(url, method=method).status in (404, 405), method
        # The secret of the service, an hour ago.
        past = LocalSigning(blobs, ManualClock(time.time() - 3601))
        old = asyncio.run(past.sign_put(f"{UPLOADS}{signed['uploadId']}/data", "text/plain", 3, 3600))
        reply = put(old.url)
        assert (reply.status, reply.code) == (403, "signature-expired"), reply
    assert put(url).status == 200
    done = f"/uploads/{signed['uploadId']}"
    assert served.ask("POST", f"{done}/complete", "b").status == 200
    served.settle()
    with served.unchanged():
        reply = put(url, b"old")  # replayed after it was used
        assert (reply.status, reply.code) == (409, "upload-conflict")
        assert served.ask("GET", f"/files/{signed['uploadId']}", "b").body == b"new"
    assert served.ask("DELETE", done, "b").status == 204
    served.settle()
    with served.unchanged():
        assert put(url).status == 410


# --- requests that the service sends


def test_webhooks_reach_no_internal_address(target: Target) -> None:
    port = target.service.port
    hosts = [
        *(
            "127.0.0.1",
            f"127.0.0.1:{port}",
            "localhost",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
        ),
        *("0", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254"),
        *(
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::ffff:169.254.169.254]",
            "[fe80::1]",
        ),
        *("[fd00:ec2::254]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]", "168.63.129.16"),
        *(
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "169.254.43518",
            "192.0.0.192",
            "224.0.0.1",
        ),
        *("255.255.255.255", "240.0.0.1", "１２７.0.0.1", "127。0。0。1", "LOCALHOST"),
        f"1.1.1.1@127.0.0.1:{port}",
    ]
    urls = [*(f"http://{host}/" for host in hosts)]
    urls += ["file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/", "//127.0.0.1/", "http://"]
    urls += [
        "http://1.1.1.1:0/",
        "http://1.1.1.1:99999/",
        "http://1.1.1.1/\r\nX: y",
        "http:1.1.1.1",
        "http://1.1.1.1 .evil/",
    ]
    webhook = target.resources["webhookId"][0]
    for url in urls:
        for method, path, key, body in (
            ("POST", "/webhooks", "b", {"url": url}),
            ("PATCH", f"/webhooks/{webhook}", "a", {"url": url}),
            ("POST", "/jobs", "b", {"kind": "echo", "runAt": FUTURE, "webhook": {"url": url}}),
        ):
            reply = target.ask(method, path, key, body=body)
            assert reply.status == 422, (url, path, reply)


def test_a_key_in_a_body_is_no_credential(target: Target) -> None:
    key = target.keys["a-all"]
    for lines, body in (
        (JSON, json.dumps({"kind": "echo", "key": key, "token": key, "access_token": key}).encode()),
        ({"Content-Type": "application/x-www-form-urlencoded"}, f"access_token={key}".encode()),
    ):
        refused(target.ask("POST", "/jobs", headers=lines, body=body), lines)
