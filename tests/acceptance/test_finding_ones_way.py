"""What a new user opens first: `/` with its links, paths with a slash at the end, and the commands of `/docs`."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bide
from tests.servers.service import ServiceProcess

APP = """
from bide import App, Context, File

app = App()

@app.job()
def report(ctx: Context) -> int:
    path = ctx.folder / "report"
    path.write_text("a report")
    ctx.output("report.txt", path)
    return 7

@app.job(require_key=True)
def look(source: File, pages: list[File], title: str, note: str = "it's; @here") -> int:
    return source.size + sum(page.size for page in pages)
"""
CONTENT = b"0123456789"
TUS = {"Tus-Resumable": "1.0.0"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "tasks.py").write_text(APP)
    process = ServiceProcess(folder, "tasks:app", workers=1, env={"PYTHONPATH": _path(folder)})
    process.start()
    yield process
    process.stop()


def _path(folder: Path) -> str:
    return f"{Path(bide.__file__).parents[1]}:{folder}"


def ask(
    service: ServiceProcess, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(service.url + path, body, lines, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()


def test_the_root_answers_with_links_that_can_be_followed(service: ServiceProcess) -> None:
    _, headers, body = ask(service, "GET", "/")
    assert headers["content-type"] == "application/json"
    document = json.loads(body)
    assert (document["name"], document["version"]) == ("bide", bide.__version__)
    assert {"jobs", "kinds", "docs", "openapi"} <= set(document["links"])
    for link in document["links"].values():
        assert ask(service, "GET", link)[0] == 200


def test_a_collection_is_the_same_with_and_without_a_slash_at_the_end(service: ServiceProcess) -> None:
    document = json.loads(ask(service, "GET", "/openapi.json")[2])
    collections = [
        path
        for path in document["paths"]
        if "{" not in path
        and len(path) > 1
        and not path.startswith("/session/oidc")  # only with an issuer
    ]
    for path in collections:
        if "get" in document["paths"][path]:
            with_slash, without = (ask(service, "GET", one) for one in (path + "/", path))
            assert with_slash[0] == without[0] == 200
            assert with_slash[1]["content-type"] == without[1]["content-type"]
    assert ask(service, "OPTIONS", "/files/")[1]["tus-version"] == "1.0.0"
    created = ask(service, "POST", "/files/", None, **TUS, Upload_Length="10")
    assert created[0] == 201 and re.fullmatch(r"/files/\w+", created[1]["location"])
    assert ask(service, "POST", "/uploads/", CONTENT)[0] == 201
    json_type = {"Content-Type": "application/json"}
    assert ask(service, "POST", "/jobs/", b'{"kind": "report"}', **json_type)[0] == 202
    assert ask(service, "POST", "/jobs/batch/", b'{"jobs": []}', **json_type)[0] == 202


# --- the commands of /docs


@pytest.fixture(scope="module")
def page(service: ServiceProcess) -> str:
    return ask(service, "GET", "/docs")[2].decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has the files that the commands send."""
    folder = tmp_path_factory.mktemp("commands")
    for name in ("FILE", "CHUNK", "PART"):
        (folder / name).write_bytes(CONTENT)
    return folder


def command(page: str, section: str) -> str:
    found = re.search(rf'<section id="{section}">.*?<pre>(curl .*?)</pre>', page, re.DOTALL)
    assert found is not None, section
    return html.unescape(found[1])


def run(command: str, folder: Path) -> tuple[int, str]:
    """Returns the status and the output."""
    assert command.startswith("curl ")
    done = subprocess.run(
        ["bash", "-c", f"curl -sS -w '\\n%{{http_code}}' {command[5:]}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # 28: --max-time passed, which ends a connection that the server keeps open.
    assert done.returncode in ((0, 28) if "--max-time" in command else (0,)), (command, done)
    output, _, status = done.stdout.rpartition("\n")
    return int(status), output


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@needs_curl
def test_the_command_of_a_kind_with_files_sends_them_in_a_form(
    page: str, service: ServiceProcess, folder: Path
) -> None:
    shown = command(page, "kind-look")
    assert "-F source=@FILE -F pages=@FILE" in shown
    status, output = run(shown, folder)
    assert (status, json.loads(output)["result"]) == (200, 2 * len(CONTENT)), output
    status, output = run(command(page, "kind-report"), folder)
    assert (status, json.loads(output)["result"]) == (200, 7), output


class Resources:
    """Makes what the command of an operation names."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service

    def _post(self, path: str, document: Any) -> Any:
        return self._service.ask("POST", path, document)

    def job(self) -> dict[str, str]:
        job = self._service.ask("POST", "/jobs", {"kind": "report"}, {"Prefer": "wait=30"})
        assert job["status"] == "DONE"
        return {"JOB_ID": job["jobId"], "NAME": "report.txt"}

    def waiting(self) -> dict[str, str]:
        job = self._post("/jobs", {"kind": "report", "runAt": "2999-01-01T00:00:00Z"})
        return {"JOB_ID": job["jobId"]}

    def cancelled(self) -> dict[str, str]:
        made = self.waiting()
        self._post(f"/jobs/{made['JOB_ID']}/cancel", {})
        return made

    def upload(self) -> dict[str, str]:
        _, headers, _ = ask(self._service, "POST", "/uploads", CONTENT)
        return {"UPLOAD_ID": headers["location"].rpartition("/")[2]}

    def chunked(self) -> dict[str, str]:
        return {"UPLOAD_ID": self._post("/uploads/chunked", {"size": len(CONTENT)})["uploadId"]}

    def complete(self) -> dict[str, str]:
        made = self.chunked()
        ask(self._service, "PUT", f"/uploads/{made['UPLOAD_ID']}/chunks/0", CONTENT)
        return made

    def signed(self) -> dict[str, str]:
        wanted = {"size": len(CONTENT), "contentType": "video/mp4"}
        return {"URL": self._post("/uploads/presign", wanted)["url"]}

    def parts(self) -> dict[str, str]:
        wanted = {"size": 20_000_000, "multipart": True}
        return {"UPLOAD_ID": self._post("/uploads/presign", wanted)["uploadId"]}

    def part(self) -> dict[str, str]:
        wanted = {"size": len(CONTENT), "multipart": True}
        upload_id = self._post("/uploads/presign", wanted)["uploadId"]
        return {"URL": self._post(f"/uploads/{upload_id}/parts", {"numbers": [1]})["parts"][0]["url"]}

    def tus(self) -> dict[str, str]:
        _, headers, _ = ask(
            self._service, "POST", "/files", None, **TUS, Upload_Length=str(len(CONTENT))
        )
        return {"UPLOAD_ID": headers["location"].rpartition("/")[2]}

    def webhook(self) -> dict[str, str]:
        return {"WEBHOOK_ID": self._post("/webhooks", {"url": "https://receiver.example/"})["id"]}

    def key(self) -> dict[str, str]:
        return {"KEY_ID": self._post("/keys", {"name": "a key", "scopes": ["read"]})["id"]}

    def named(self) -> dict[str, str]:
        return {"KIND": "report", "NAME": "default"}


# Other operations get a job that has ended, or a complete upload.
_MADE_FOR: dict[str, Callable[[Resources], dict[str, str]]] = {
    "cancelJob": Resources.waiting,
    "retryJob": Resources.cancelled,
    **dict.fromkeys(("putChunk", "getChunks"), Resources.chunked),
    "completeUpload": Resources.complete,
    "putContent": Resources.signed,
    **dict.fromkeys(("signParts", "getParts"), Resources.parts),
    "putPart": Resources.part,
    **dict.fromkeys(("headFile", "patchFile", "overrideFileMethod", "deleteFile"), Resources.tus),
}


# A service without authentication refuses them; tests/integration/http has tests with keys and with an issuer.
_REFUSED = {"signIn": 409, "createToken": 409, "beginSignIn": 404, "finishSignIn": 404}


@needs_curl
def test_every_operation_has_a_command_that_works(
    page: str, service: ServiceProcess, folder: Path
) -> None:
    document = json.loads(ask(service, "GET", "/openapi.json")[2])
    listed = {one["operationId"] for path in document["paths"].values() for one in path.values()}
    sections = re.findall(r'<section id="(\w+)">', page)
    assert listed | {"connectWebSocket"} == set(sections)
    resources = Resources(service)
    refused = {}
    for name in sections:
        if name == "connectWebSocket":  # curl speaks no WebSocket
            continue
        shown = command(page, name)
        make = _MADE_FOR.get(name, Resources.named)
        if name not in _MADE_FOR and "JOB_ID" in shown:
            make = Resources.job
        elif name not in _MADE_FOR and "UPLOAD_ID" in shown:
            make = Resources.upload
        elif "WEBHOOK_ID" in shown:
            make = Resources.webhook
        elif "KEY_ID" in shown:
            make = Resources.key
        for placeholder, value in make(resources).items():
            shown = re.sub(rf"\b{placeholder}\b", value.replace("\\", "\\\\"), shown)
        status, output = run(shown, folder)
        if not (200 <= status < 300 or status == _REFUSED.get(name)):
            refused[name] = (shown, status, output)
    assert not refused
