"""A service with two tenants for the adversary suite, and its operations as `/openapi.json` lists them.

A new operation is attacked without a change here, unless it has a path parameter or a body that nothing here fills in. Then
the suite fails until RESOURCES, VALUES or BODIES has one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bide.server.config import Config
from bide.server.identities import SCOPES
from bide.service.assembly import open_keys
from tests.acceptance.forgeries import AUDIENCE, ISSUER, Forger
from tests.servers.service import ServiceProcess
from tests.waiting import until

CANARY = "canary-of-tenant-a"  # in everything that tenant `a` has
UNKNOWN = "01" + "0" * 24  # an id that nothing has
UNKNOWN_KEY = "0" * 12
SAFE = ("GET", "HEAD", "OPTIONS")
TUS = {"Tus-Resumable": "1.0.0"}
JSON = {"Content-Type": "application/json"}
FUTURE = "2100-01-01T00:00:00Z"

# Tables that the service writes by itself: what it has learned and counted.
BACKGROUND = ("write_check", "durations", "rollups", "log_state", "search_backfill")

# Path parameters that name a resource of one tenant. `Target.resources` has those of tenant `a`.
RESOURCES = ("jobId", "uploadId", "webhookId")
# Path parameters that name something of the service, which each caller with the scope may name.
VALUES = {
    "/jobs/{jobId}/files/{name}": {"name": "a.txt"},
    "/uploads/{uploadId}/chunks/{number}": {"number": "0"},
    "/uploads/{uploadId}/parts/{number}": {"number": "1"},
    "/queues/{name}/pause": {"name": "default"},
    "/queues/{name}/resume": {"name": "default"},
    "/keys/{keyId}/rotate": {"keyId": UNKNOWN_KEY},
    "/keys/{keyId}": {"keyId": UNKNOWN_KEY},
    "/problems/{code}": {"code": "not-found"},
    "/ui/{file}": {"file": "bide.js"},
}
# Headers and body of operations that read them before they look up an id, so that only the identity can be wrong.
BODIES: dict[str, tuple[dict[str, str], Any]] = {
    "submitJob": (JSON, {"kind": "echo"}),
    "submitJobs": (JSON, {"jobs": [{"kind": "echo"}]}),
    "bulkAction": (JSON, {"action": "cancel", "filter": {}}),
    "createUpload": ({}, b"bytes"),
    "createChunkedUpload": (JSON, {"size": 2 << 20}),
    "presignUpload": (JSON, {"size": 10}),
    "putChunk": ({}, b"x"),
    "putContent": ({}, b"x"),
    "putPart": ({}, b"x"),
    "hearStorage": (JSON, {"Records": []}),
    "signParts": (JSON, {"numbers": [1]}),
    "createFile": ({**TUS, "Upload-Length": "10"}, None),
    "headFile": (TUS, None),
    "patchFile": (
        {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"},
        b"x",
    ),
    "overrideFileMethod": ({**TUS, "X-HTTP-Method-Override": "DELETE"}, None),
    "deleteFile": (TUS, None),
    "createWebhook": (JSON, {"url": "http://1.1.1.1/", "kinds": ["no-such-kind"]}),
    "updateWebhook": (JSON, {"enabled": False}),
    "replayWebhook": (JSON, {"from": "2026-01-01T00:00:00Z"}),
    "createKey": (JSON, {"scopes": ["admin"]}),
    "rotateKey": (JSON, {"overlap": 0}),
    "signIn": (JSON, {"key": "bide_4t9hq2m0xk1c_wrong"}),
    "createToken": (JSON, {"jobs": [UNKNOWN]}),
}


@dataclass(frozen=True)
class Operation:
    """An operation of the document."""

    name: str
    method: str
    path: str
    scope: str | None  # None: it is public
    query: frozenset[str]

    @property
    def resource(self) -> str | None:
        """The path parameter that names a resource of a tenant."""
        return next((name for name in RESOURCES if f"{{{name}}}" in self.path), None)

    @property
    def changes(self) -> bool:
        return self.method not in SAFE

    def fill(self, resource: str = UNKNOWN) -> str:
        """The path with this id of a resource."""
        values = {**VALUES.get(self.path, {}), **({self.resource: resource} if self.resource else {})}
        missing = set(re.findall(r"\{(\w+)\}", self.path)) - values.keys()
        assert not missing, (
            f"{self.method} {self.path} has the path parameter {missing}: decide in tests/acceptance/adversary.py "
            "whether it names a resource of a tenant (RESOURCES), or something of the service (VALUES)"
        )
        return re.sub(r"\{(\w+)\}", lambda name: values[name[1]], self.path)

    @property
    def content(self) -> tuple[dict[str, str], bytes]:
        headers, body = BODIES.get(self.name, ({}, None))
        return headers, body if isinstance(body, bytes) else b"" if body is None else _encode(body)


# OpenAPI cannot describe a WebSocket.
UNLISTED = [Operation("connectWebSocket", "GET", "/ws", "read", frozenset({"token"}))]


def read_operations(document: Mapping[str, Any]) -> list[Operation]:
    found = []
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            name = described["operationId"]
            if described.get("requestBody", {}).get("required"):
                assert name in BODIES, f"{name} needs a body: add one to BODIES in {__file__}"
            security = described.get("security")
            query = {p["name"] for p in described.get("parameters", ()) if p["in"] == "query"}
            scope = None if security is None else security[0]["bearer"][0]
            found.append(Operation(name, method.upper(), path, scope, frozenset(query)))
    return found


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        code: str = self.json()["code"] if self.body and self.status >= 400 else ""
        return code or None

    def without(self, *names: str) -> tuple[int, dict[str, str], Any]:
        """The response without what differs from request to request, and with these ids replaced."""
        text = self.body.decode("latin-1")
        headers = {n: v for n, v in self.headers.items() if n not in ("date", "content-length")}
        for name in names:
            text = text.replace(name, "ID")
            headers = {n: v.replace(name, "ID") for n, v in headers.items()}
        document = json.loads(text or "{}")
        document.pop("traceId", None)
        return self.status, headers, document


def _encode(body: Any) -> bytes:
    return json.dumps(body).encode()


@dataclass
class Target:
    """The service under attack. Tenant `a` has resources, tenant `b` and the others have none."""

    service: ServiceProcess
    forger: Forger
    keys: dict[str, str] = field(default_factory=dict)  # by name
    operations: list[Operation] = field(default_factory=list)
    resources: dict[str, list[str]] = field(default_factory=dict)  # of tenant `a`, by path parameter
    _connection: http.client.HTTPConnection | None = None

    # --- requests

    def ask(
        self,
        method: str,
        path: str,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Any = b"",
    ) -> Reply:
        """One request on a connection that is kept. `key`: the name of a key."""
        lines = dict(headers or {})
        if key is not None:
            lines["Authorization"] = f"Bearer {self.keys[key]}"
        if not isinstance(body, bytes):
            lines, body = {**JSON, **lines}, _encode(body)
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=30)
        try:
            self._connection.request(method, path, body or None, lines)
            found = self._connection.getresponse()
            reply = Reply(found.status, {n.lower(): v for n, v in found.getheaders()}, found.read())
        except BaseException:
            self.close()
            raise
        if key is None or self.keys[key] not in self._of_a:
            assert CANARY.encode() not in reply.body, f"{method} {path} shows data of tenant a"
        return reply

    def call(
        self,
        operation: Operation,
        path: str,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """An operation with a body that it accepts."""
        lines, body = operation.content
        return self.ask(operation.method, path, key, {**lines, **(headers or {})}, body)

    def raw(self, request: bytes, *, timeout: float = 10.0) -> bytes:
        """What the service answers to these bytes until it closes the connection, which it must."""
        with socket.create_connection(("127.0.0.1", self.service.port), timeout=timeout) as connection:
            answer = b""
            try:
                connection.sendall(request)
                while data := connection.recv(65536):
                    answer += data
            except (ConnectionResetError, BrokenPipeError):
                pass
            return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _of_a(self) -> set[str]:
        return {text for name, text in self.keys.items() if name == "a" or name.startswith("a-")}

    @property
    def protected(self) -> list[Operation]:
        return [operation for operation in self.operations if operation.scope is not None]

    def create(self, name: str, tenant: str, *scopes: str) -> str:
        """Create a key over HTTP; return its id."""
        made = self.ask(
            "POST", "/keys", "admin", body={"tenant": tenant, "scopes": scopes or SCOPES[:3]}
        )
        assert made.status == 201, made
        self.keys[name] = made.json()["key"]
        key_id: str = made.json()["id"]
        return key_id

    # --- what is stored

    def stored(self) -> dict[str, list[Any]]:
        """All rows and files that a request could change."""
        database = f"file:{self.service.data / 'bide.db'}?mode=ro"
        connection = sqlite3.connect(database, uri=True)
        try:
            names = [
                name
                for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            found: dict[str, list[Any]] = {
                name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
                for name in names
                if name not in (*BACKGROUND, "records") and not name.startswith("sqlite_")
            }
            # Apart from what the service writes by itself, or because of refused calls.
            own = ("audit", "api_key_uses", "workers", "leases", "publisher", "durations")
            query = f"SELECT * FROM records WHERE collection NOT IN ({','.join('?' * len(own))})"
            found["records"] = sorted(map(repr, connection.execute(query, own)))
        finally:
            connection.close()
        files = (path for path in self.service.data.rglob("*") if path.is_file())
        found["files"] = sorted(
            (str(path), path.stat().st_size)
            for path in files
            if not path.name.startswith("bide.db") and "blobs" in str(path)
        )
        return found

    def settle(self) -> None:
        """Wait until the service has finished what follows a change, such as the removal of files."""
        before, since = self.stored(), time.monotonic()
        end = since + 30
        while time.monotonic() < min(since + 1, end):
            time.sleep(0.1)
            if (after := self.stored()) != before:
                before, since = after, time.monotonic()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What runs inside of it must not change what is stored. After a change that is allowed, `settle` comes first."""
        before = self.stored()
        assert before["jobs"] and before["uploads"] and before["records"] and before["files"]
        yield
        after = self.stored()
        changed = {
            name: set(before[name]) ^ set(after[name]) for name in before if before[name] != after[name]
        }
        assert not changed, changed


# --- setting up


def start(folder: Path) -> Target:
    """Start the service, with all keys and with the resources of tenant `a`."""
    forger = Forger()
    key_set = folder / "keys.json"
    key_set.write_text(forger.key_set)
    options = ["--auth", "keys", "--oidc", ISSUER, "--audience", AUDIENCE, "--jwks", str(key_set)]
    service = ServiceProcess(folder, "tests.apps.echo:app", workers=1, options=options)
    target = Target(service, forger)
    asyncio.run(_first_keys(target))
    service.start()
    try:
        _set_up(target)
    except BaseException:
        target.close()
        service.stop()
        raise
    return target


def _set_up(target: Target) -> None:
    target.create("a", "a")
    target.create("a-all", "a", *SCOPES)
    target.create("b", "b")
    for scope in SCOPES:
        target.create(scope, "c", scope)
    revoked = target.create("revoked", "c", *SCOPES)
    assert target.ask("DELETE", f"/keys/{revoked}", "admin").status == 204
    document = target.ask("GET", "/openapi.json", "read").json()
    target.operations = [*read_operations(document), *UNLISTED]
    target.resources = _resources(target)
    # The service makes these secrets when it first needs them.
    for key in ("a", "b"):
        assert target.ask("GET", "/webhooks/secret", key).status == 200
    assert target.ask("POST", "/tokens", "a", body={"jobs": [UNKNOWN]}).status == 201
    target.settle()


async def _first_keys(target: Target) -> None:
    async with open_keys(Config(data=target.service.data)) as keys:
        _, target.keys["admin"] = await keys.create(tenant="-", scopes=("admin", "read"))
        _, target.keys["expired"] = await keys.create(
            tenant="c", scopes=SCOPES, expires_at=time.time() - 1
        )


def _resources(target: Target) -> dict[str, list[str]]:
    labels = {"owner": CANARY}

    def made(method: str, path: str, status: int, **request: Any) -> Reply:
        reply = target.ask(method, path, "a", **request)
        assert reply.status == status, reply
        return reply

    def submit(**job: Any) -> str:
        job_id: str = made("POST", "/jobs", 202, body={"labels": labels, **job}).json()["jobId"]
        return job_id

    waiting = submit(kind="echo", runAt=FUTURE)
    done = submit(kind="encode", input={"source": CANARY})
    removed = submit(kind="echo", runAt=FUTURE)
    made("POST", f"/jobs/{removed}/cancel", 200)
    made("DELETE", f"/jobs/{removed}", 204)
    content = made("POST", f"/uploads?name={CANARY}", 201, body=CANARY.encode())
    gone = made("POST", "/uploads", 201, body=b"old").json()["uploadId"]
    made("DELETE", f"/uploads/{gone}", 204)
    tus = made("POST", "/files", 201, headers={**TUS, "Upload-Length": "10"})
    chunked = made("POST", "/uploads/chunked", 201, body={"size": 2 << 20, "chunkSize": 1 << 20})
    parts = made("POST", "/uploads/presign", 201, body={"size": 20 << 20, "multipart": True})
    single = made(
        "POST", "/uploads/presign", 201, body={"size": 3, "name": CANARY, "contentType": "text/plain"}
    )
    # An address that needs no look-up, and a kind that never happens: nothing is sent.
    hook = {"url": f"http://1.1.1.1/{CANARY}", "kinds": ["no-such-kind"]}
    webhook = made("POST", "/webhooks", 201, body=hook)
    until(lambda: target.ask("GET", f"/jobs/{done}", "a").json()["status"] == "DONE")
    return {
        "jobId": [waiting, done, removed],
        "uploadId": [
            tus.headers["location"].rpartition("/")[2],
            *(reply.json()["uploadId"] for reply in (chunked, parts, single, content)),
            gone,
        ],
        "webhookId": [webhook.json()["id"]],
    }


def statuses(answer: bytes) -> Sequence[int]:
    """The statuses of all responses in what a connection has received."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
