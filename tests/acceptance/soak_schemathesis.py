"""schemathesis against the served document: no 5xx, and no undocumented response.

Only `make chaos` runs it; a name that pytest does not collect, because the import alone takes seconds. In `make test`,
`tests/integration/http/service.py` compares every response with the document.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from bide.core.jobs.state_machine import Succeeded
from bide.core.wire.http import is_job_id
from bide.server.http.request import Message, Receive, Scope, Send
from bide.server.registry import File, Registry
from tests.acceptance import schemathesis_hooks
from tests.acceptance.test_identities import create
from tests.integration.http.service import Service
from tests.servers.service import ServiceProcess, importing

# pyproject.toml disables it for all other tests, so that they start faster.
pytest_plugins = ["schemathesis.pytest.plugin"]

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.soak
# Of the tests with keys, all together.
SECONDS = float(os.environ.get("BIDE_TEST_SCHEMATHESIS_SECONDS", "1800"))
# Examples of each operation.
MANY, MANY_REAL = 120, 30


def _kinds() -> Registry:
    registry = Registry()

    @registry.job(queue="video", retries=2)
    def encode(source: str, height: int = 720, tags: list[str] | None = None) -> dict[str, str]:
        return {}

    @registry.job()
    def echo(value: Any = None) -> Any:
        return value

    @registry.job()
    def measure(source: File, pages: list[File] | None = None, unit: str = "bytes") -> int:
        return 0

    return registry


class _Served:
    """A service for each lifespan, so that its store lives on the loop that the requests come on.

    Drawn ids are no job's: most of them are exchanged for those of jobs that are waiting, running, done, failed,
    or gone, and most names of files for that of one.
    """

    service: Service
    ids: list[str]
    uploads: list[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            scope["path"] = self._to_what_there_is(scope["path"])
            return await self.service.app(scope, receive, send)
        await receive()
        with tempfile.TemporaryDirectory() as folder:
            self.service = Service(Path(folder), _kinds())
            async with self.service.opened():
                self.ids = [job_id for _ in range(3) for job_id in await _jobs(self.service)]
                self.uploads = await _uploads(self.service)
                await send(_message("lifespan.startup.complete"))
                await receive()
        return await send(_message("lifespan.shutdown.complete"))

    def _to_what_there_is(self, path: str) -> str:
        segments = path.split("/")
        if len(segments) < 3 or not is_job_id(segments[2]):
            return path
        chosen = zlib.crc32(segments[2].encode())
        if segments[1] == "jobs" and chosen % 4:
            segments[2] = self.ids[chosen % len(self.ids)]
            if segments[3:4] == ["files"] and segments[4:] not in ([], [""]):
                segments[4] = "a.txt"
        elif segments[1] in ("uploads", "files") and chosen % 4:
            segments[2] = self.uploads[chosen % len(self.uploads)]
        return "/".join(segments)


async def _uploads(service: Service) -> list[str]:
    """One of each way, whole, begun and gone."""
    tus = {"tus-resumable": "1.0.0"}
    made = [
        await service.call("POST", "/uploads", body=b"0123456789"),
        await service.call("POST", "/files", headers={**tus, "upload-length": "1000000"}),
        await service.call("POST", "/files", headers={**tus, "upload-length": "0"}),
        await service.call(
            "POST", "/files", headers={**tus, "upload-length": "9", "upload-concat": "partial"}
        ),
        await service.call("POST", "/uploads/chunked", json={"size": 1_000_000}),
        await service.call("POST", "/uploads/presign", json={"size": 10}),
        await service.call("POST", "/uploads/presign", json={"size": 10_000_000, "multipart": True}),
        await service.call("POST", "/uploads", body=b"gone"),
    ]
    ids = [reply.headers["location"].rpartition("/")[2] for reply in made]
    await service.call("DELETE", f"/uploads/{ids[-1]}")
    return ids


async def _jobs(service: Service) -> list[str]:
    """A job of each sort."""
    deleted, failed, done, large, running = [await service.submit() for _ in range(5)]
    assert (await service.call("DELETE", f"/jobs/{deleted}")).status == 204
    await service.fail(await service.claim())
    job = await service.claim()
    file = service.blobs.put(done, job.fence, "a.txt", b"0123456789", "text/plain")
    await service.finish(job, files=(file,))
    job = await service.claim()
    result = service.blobs.put(
        large, job.fence, "result.json", b"[" + b"1," * 50_000 + b"1]", "application/json"
    )
    await service.apply(Succeeded(job_id=large, fence=job.fence, result_file=result))
    await service.claim()
    service.engine.elsewhere = {"idle"}
    return [deleted, failed, done, large, running, await service.submit(queue="idle")]


def _message(type_: str) -> Message:
    return {"type": type_}


# What depends on the job, not on the request: it is missing, in another status, at another ETag, or too short. 405: an id
# that is the name of an operation.
_STATE = ["2xx", "304", "404", "405", "409", "410", "412", "416"]
# What a schema cannot say: a deadline or an expiry lies ahead, a cursor comes from an earlier answer, `id` stands alone,
# `from` is before `to`, the statuses and the priority fit the action.
_UNSAYABLE = [*_STATE, "400", "422"]


def _refusals(statuses: list[str]) -> dict[str, Any]:
    return {"checks": {"positive_data_acceptance": {"expected-statuses": statuses}}}


_SETTINGS: dict[str, Any] = {
    "seed": 1,
    "checks": {
        **_refusals(_STATE)["checks"],
        # The check removes the header, but keeps a valid `token` of an earlier response in the query. The adversary suite
        # calls each operation without a credential.
        "ignored_auth": {"enabled": False},
        # A request that is wrong in two ways may be rejected for the other one: too large, gone, changed, damaged.
        "negative_data_rejection": {
            "expected-statuses": [
                "400",
                "403",
                "404",
                "405",
                "409",
                "410",
                "412",
                "413",
                "415",
                "422",
                "460",
            ]
        },
    },
    "operations": [
        *(
            {"include-operation-id": name, **_refusals(_UNSAYABLE)}
            for name in (
                *("submitJob", "listJobs", "getStatistics", "bulkAction"),
                *("createWebhook", "updateWebhook", "replayWebhook", "createKey"),
                *("listUploads", "listAudit", "createToken", "beginSignIn"),
            )
        ),
        # A length, a checksum, a list of parts, a size that fits the chunk: their forms say too little.
        *(
            {"include-operation-id": name, **_refusals([*_UNSAYABLE, "413", "415", "460", "507"])}
            for name in ("createUpload", "createChunkedUpload", "putChunk", "completeUpload")
        ),
        *(
            {"include-operation-id": name, **_refusals([*_UNSAYABLE, "413", "507"])}
            for name in ("presignUpload", "signParts")
        ),
        # A random key is never valid.
        {"include-operation-id": "signIn", **_refusals([*_UNSAYABLE, "401"])},
        # A random signature is never valid.
        *(
            {"include-operation-id": name, **_refusals([*_UNSAYABLE, "403"])}
            for name in ("putContent", "putPart")
        ),
        # tus answers 412 without its header. Lengths, offsets, metadata and checksums depend on each other.
        *(
            {
                "include-operation-id": name,
                "checks": {
                    **_refusals([*_UNSAYABLE, "403", "413", "415", "460", "507"])["checks"],
                    "missing_required_header": {
                        # Or the request is refused for another reason first.
                        "expected-statuses": [
                            *["400", "403", "404", "405", "409", "410", "412", "415", "422"]
                        ]
                    },
                },
            }
            for name in ("createFile", "headFile", "patchFile", "overrideFileMethod", "deleteFile")
        ),
        # A job in a queue with a random name waits for a worker that does not exist.
        {
            "include-operation-id": "getReadiness",
            "checks": {
                "positive_data_acceptance": {"expected-statuses": ["200", "503"]},
                "not_a_server_error": {"expected-statuses": ["2xx", "4xx", "503"]},
            },
        },
    ],
}
_CONFIG = SchemathesisConfig.from_dict(_SETTINGS)
schema = schemathesis.openapi.from_asgi("/openapi.json", _Served(), config=_CONFIG)


def _bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@schema.parametrize()
@_bounded(MANY)
def test_no_answer_outside_the_document(case: schemathesis.Case[Any]) -> None:
    case.call_and_validate()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """The real thing: `bide serve` with children that run what is accepted, and one job that none of them serves."""
    service = ServiceProcess(
        tmp_path_factory.mktemp("served"), "tests.apps.echo:app", options=["--allow-unknown-queues"]
    )
    service.start()
    service.ask("POST", "/jobs", {"kind": "echo", "queue": "unserved"})
    yield service
    service.stop()


@pytest.fixture(scope="module")
def served(running: ServiceProcess) -> Any:
    return schemathesis.openapi.from_url(running.url + "/openapi.json", config=_CONFIG)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_answer_outside_the_document_of_a_running_service(served: Any, mode: GenerationMode) -> None:
    tried = 0
    for found in served.get_all_operations():
        operation = found.ok()

        @_bounded(MANY_REAL)
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case: schemathesis.Case[Any]) -> None:
            nonlocal tried
            tried += 1
            case.call_and_validate()

        with contextlib.suppress(Unsatisfiable):  # nothing about some operations can be wrong
            run()
    assert tried > 3 * MANY_REAL  # and so not only what needs no input


def _toml(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The lines of a TOML file with these settings."""
    for name, value in table.items():
        if not isinstance(value, dict) and name != "operations":
            yield f"{name} = {json.dumps(value)}"
    for name, value in table.items():
        if isinstance(value, dict):
            yield f"[{prefix}{name}]"
            yield from _toml(value, f"{prefix}{name}.")
    for operation in table.get("operations", ()):
        yield "[[operations]]"
        yield from _toml(operation, "operations.")


# --- with keys

# Which part of the time each key gets: its name, tenant and scopes.
_KEYS = (
    ("operator", "a", ("read", "submit", "control", "admin"), 0.35),
    ("backend", "a", ("read", "submit", "control"), 0.3),
    ("another tenant", "b", ("read", "submit", "control"), 0.2),
    ("reader", "a", ("read",), 0.05),
    ("submitter", "b", ("submit",), 0.05),
    ("controller", "a", ("control",), 0.05),
)
# With the ids of earlier responses, an operator would revoke its own key. Without keys, the tests above call both.
_EXCLUDED = ("--exclude-operation-id", "revokeKey", "--exclude-operation-id", "rotateKey")


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, str]]:
    """A service with `--auth keys`, and the key of an operator."""
    folder = tmp_path_factory.mktemp("protected")
    options = ["--auth", "keys", "--allow-unknown-queues"]
    service = ServiceProcess(folder, "tests.apps.echo:app", options=options)
    admin = create(service.data, "--scope", "admin,read", "--tenant", "c")
    service.start()
    yield service, admin
    service.stop()
    assert "Traceback" not in (folder / "serve.log").read_text()


def _ask(service: ServiceProcess, key: str, method: str, path: str, body: Any = None) -> Any:
    return service.ask(method, path, body, {"Authorization": f"Bearer {key}"})


def _with_scopes(settings: dict[str, Any], scopes: Sequence[str]) -> dict[str, Any]:
    """The settings for a key that may not do everything: each check accepts a 403."""
    if len(scopes) == 4:
        return settings
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "expected-statuses":
            found[name] = sorted({*value, "403"})
        elif isinstance(value, dict):
            found[name] = _with_scopes(value, scopes)
        elif name == "operations":
            found[name] = [_with_scopes(operation, scopes) for operation in value]
        else:
            found[name] = value
    checks = found.get("checks")
    if checks is not None and "operations" in found:
        usual = ["400", "401", "403", "404", "406", "412", "422"]
        checks.setdefault("missing_required_header", {"expected-statuses": usual})
    return found


@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.parametrize(("name", "tenant", "scopes", "part"), _KEYS, ids=[key[0] for key in _KEYS])
def test_all_checks_find_only_documented_refusals(
    protected: tuple[ServiceProcess, str],
    tmp_path: Path,
    name: str,
    tenant: str,
    scopes: tuple[str, ...],
    part: float,
) -> None:
    """The command line of schemathesis, with its phases: examples, coverage, fuzzing, and sequences of requests."""
    service, admin = protected
    wanted = {"tenant": tenant, "scopes": scopes, "name": name}
    key = _ask(service, admin, "POST", "/keys", wanted)["key"]
    other = {"tenant": "b" if tenant == "a" else "a", "scopes": ["read", "submit"]}
    watcher = _ask(service, admin, "POST", "/keys", other)["key"]
    job = _ask(service, watcher, "POST", "/jobs", {"kind": "echo", "runAt": "2100-01-01T00:00:00Z"})
    before = _ask(service, watcher, "GET", "/jobs?count=true")["count"]

    (tmp_path / "schemathesis.toml").write_text("\n".join(_toml(_with_scopes(_SETTINGS, scopes))))
    command = ["run", f"{service.url}/openapi.json", "--checks", "all", "--continue-on-failure"]
    command += ["--header", f"Authorization: Bearer {key}", "--max-time", str(int(SECONDS * part))]
    # `--checks all` enables it again for operations with settings of their own.
    command += ["--exclude-checks", "ignored_auth"]
    if "admin" in scopes:
        command += _EXCLUDED
    if "read" not in scopes:  # it may not read the document
        document = tmp_path / "openapi.json"
        document.write_text(json.dumps(_ask(service, watcher, "GET", "/openapi.json")))
        command[1:2] = [str(document), "--url", service.url]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *command],
        cwd=tmp_path,
        env={**os.environ, **importing(ROOT), "SCHEMATHESIS_HOOKS": schemathesis_hooks.__name__},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    # Nothing that was sent has reached the other tenant.
    assert _ask(service, watcher, "GET", "/jobs?count=true")["count"] == before
    assert _ask(service, watcher, "GET", f"/jobs/{job['jobId']}")["status"] == "PENDING"
