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
from collections.abc import Iterator
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
from tests.integration.http.service import Service
from tests.servers.service import ServiceProcess

# pyproject.toml disables it for all other tests, so that they start faster.
pytest_plugins = ["schemathesis.pytest.plugin"]

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.soak
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


@pytest.mark.timeout(400)
def test_three_minutes_of_all_checks_find_only_documented_refusals(
    running: ServiceProcess, tmp_path: Path
) -> None:
    """The command line of schemathesis, with its phases: examples, coverage, fuzzing, and sequences of requests."""
    (tmp_path / "schemathesis.toml").write_text("\n".join(_toml(_SETTINGS)))
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = ["run", f"{running.url}/openapi.json", "--checks", "all", "--max-time", "180"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *command, "--continue-on-failure"],
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": schemathesis_hooks.__name__, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
