"""Clients of other projects upload to a real service: curl, tuspy, tus-js-client in Node, and Uppy in Chromium.

What is needed besides Python packages: node with tus-js-client and uppy in `node` of the venv (scripts/setup puts them
there), chromium, curl.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.service import ServiceProcess
from tests.waiting import until

NODE = Path(sys.prefix) / "node" / "node_modules"
CONTENT = os.urandom(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


def absent(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        absent(f"{program} is not installed")
    assert found is not None
    return found


def need_browser() -> str:
    """Chromium; its headless shell if there is one, which takes a third of the processor time."""
    return shutil.which("chromium-headless-shell") or need("chromium")


def need_package(name: str) -> Path:
    found = NODE / name
    if not found.is_dir():
        absent(f"{name} is not in {NODE}: run scripts/setup")
    return found


class Pages(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def pages(folder: Path) -> Iterator[tuple[str, Path]]:
    """Pages of another origin than the service's, and the folder that they are in."""
    place = folder / "pages"
    place.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Pages, directory=str(place))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", place
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def service(folder: Path, pages: tuple[str, Path]) -> Iterator[ServiceProcess]:
    process = ServiceProcess(folder, "tests.apps.uploads:app", workers=1, options=("--origin", pages[0]))
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    path = folder / "film.mp4"
    path.write_bytes(CONTENT)
    return path


def ended(service: ServiceProcess, place: str) -> Any:
    path = place.removeprefix(service.url)

    def look() -> Any:
        job = service.ask("GET", path, headers={"Prefer": "wait=20"})
        return job if job["status"] not in ("PENDING", "PROCESSING") else None

    return until(look, timeout=60)


def check(service: ServiceProcess, place: str, **expected: Any) -> None:
    """A job that has seen the very file."""
    job = ended(service, place)
    assert job["status"] == "DONE", job
    known = {"size": len(CONTENT), "sha256": SHA256, "real": SHA256, **expected}
    assert {name: job["result"][name] for name in known} == known


def test_curl(service: ServiceProcess, source: Path) -> None:
    command = [need("curl"), "-sS", "-F", 'job={"kind": "look", "input": {"note": "curl"}}']
    command += ["-F", f"file=@{source};type=video/mp4", f"{service.url}/jobs"]
    job = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    check(service, f"/jobs/{job['jobId']}", name="film.mp4", contentType="video/mp4", note="curl")


def test_curl_that_only_announces(service: ServiceProcess, source: Path) -> None:
    """With `Expect: 100-continue` a refused file is not sent at all."""
    command = [
        need("curl"),
        "-sS",
        "-D",
        "-",
        "-H",
        "Expect: 100-continue",
        "-H",
        "Content-Encoding: gzip",
    ]
    command += ["--data-binary", f"@{source}", f"{service.url}/uploads"]
    said = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()
    assert said.startswith("HTTP/1.1 415"), said


def test_tuspy(service: ServiceProcess, source: Path) -> None:
    from tusclient.client import TusClient

    client: Any = TusClient(f"{service.url}/files")
    told = {"filename": "film.mp4", "kind": "look", "input": json.dumps({"note": "tuspy"})}
    with source.open("rb") as file:
        uploader = client.uploader(
            file_stream=file, chunk_size=1_000_000, metadata=told, upload_checksum=True
        )
        uploader.upload_chunk()
        assert uploader.offset == 1_000_000
        again = client.uploader(file_stream=file, chunk_size=1_000_000, url=uploader.url)
        assert again.offset == 1_000_000
        again.upload()
    upload = service.ask("GET", uploader.url.removeprefix(service.url).replace("files", "uploads"))
    check(service, f"/jobs/{upload['jobId']}", name="film.mp4", note="tuspy")


SCRIPT = """
const tus = require("tus-js-client");
const fs = require("fs");
const [base, path, parallel, cut] = process.argv.slice(2);
let job = null, upload = null, aborted = false;
const options = {
  endpoint: base + "/files", chunkSize: 1000000, retryDelays: [0, 100, 200],
  parallelUploads: Number(parallel),
  metadata: { filename: "film.mp4", filetype: "video/mp4", kind: "look" },
  onAfterResponse: (request, response) => { job = response.getHeader("Job-Location") || job; },
  onError: (error) => { console.error(String(error)); process.exit(1); },
  onProgress: (sent) => {
    if (cut === "cut" && sent >= 1500000 && !aborted) {
      aborted = true;
      upload.abort().then(() => upload.start());
    }
  },
  onSuccess: () => console.log(JSON.stringify({ job, url: upload.url, aborted })),
};
upload = Number(parallel) > 1
  ? new tus.Upload(fs.readFileSync(path), options)
  : new tus.Upload(fs.createReadStream(path), { ...options, uploadSize: fs.statSync(path).size });
upload.start();
"""


@pytest.mark.parametrize(("parallel", "cut"), [(1, ""), (1, "cut"), (3, "")])
def test_tus_js_client(
    service: ServiceProcess, source: Path, folder: Path, parallel: int, cut: str
) -> None:
    need_package("tus-js-client")
    script = folder / "upload.cjs"
    script.write_text(SCRIPT)
    command = [need("node"), str(script), service.url, str(source), str(parallel), cut]
    env = {**os.environ, "NODE_PATH": str(NODE)}
    done = subprocess.run(command, capture_output=True, timeout=90, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["aborted"] == (cut == "cut")
    check(service, said["job"], name="film.mp4", contentType="video/mp4")


PAGE = """<!doctype html><meta charset="utf-8"><input type="file" id="file">
<script type="module">
import { Uppy, Tus } from "./uppy.min.mjs";
const uppy = new Uppy({ autoProceed: true });
let job = null;
uppy.use(Tus, {
  endpoint: "BASE/files", chunkSize: 1000000, retryDelays: [0, 100],
  allowedMetaFields: ["name", "type", "kind"],
  onAfterResponse: (request, response) => { job = response.getHeader("Job-Location") || job; },
});
uppy.setMeta({ kind: "look" });
uppy.on("complete", (result) => {
  window.said = { job, failed: result.failed.map((f) => String(f.error)), done: result.successful.length };
});
document.getElementById("file").addEventListener("change", (event) => {
  for (const file of event.target.files) uppy.addFile({ name: file.name, type: file.type, data: file });
});
window.ready = true;
</script>"""


def test_uppy_in_a_browser(service: ServiceProcess, source: Path, pages: tuple[str, Path]) -> None:
    bundle = need_package("uppy") / "dist" / "uppy.min.mjs"
    chromium = need_browser()
    playwright = pytest.importorskip("playwright.sync_api")
    base, place = pages
    shutil.copy(bundle, place / "uppy.min.mjs")
    (place / "index.html").write_text(PAGE.replace("BASE", service.url))
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
        try:
            page = browser.new_page()
            errors: list[str] = []
            page.on("console", lambda message: errors.append(message.text))
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(f"{base}/index.html")
            page.wait_for_function("window.ready", timeout=60_000)
            page.set_input_files("#file", str(source))
            try:
                page.wait_for_function("window.said", timeout=60_000)
            except Exception as error:
                raise AssertionError(errors) from error
            said = page.evaluate("window.said")
        finally:
            browser.close()
    assert (said["failed"], said["done"]) == ([], 1), (said, errors)
    check(service, said["job"], name="film.mp4", contentType="video/mp4")
