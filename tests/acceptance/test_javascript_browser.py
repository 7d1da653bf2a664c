"""bide.js in Chromium, on a page of another origin than the service's."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide.lab.scenario import Rules
from bide.lab.vendor import Vendor
from tests.acceptance.test_upload_clients import FLAGS, Pages, need_browser
from tests.docs.pages import ROOT, blocks
from tests.node import MODULE
from tests.servers.service import ServiceProcess
from tests.waiting import until

CONTENT = os.urandom(3_000_000)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Another server, and the folder with its pages."""
    folder = tmp_path_factory.mktemp("pages")
    handler = functools.partial(Pages, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def service(
    site: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    options = ("--origin", site[0])
    process = ServiceProcess(folder, "tests.apps.javascript:app", workers=2, options=options)
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=need_browser(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, site: tuple[str, Path], service: ServiceProcess) -> Iterator[Any]:
    """A page with the module, as `bide`; what is wrong on it fails the test."""
    url, folder = site
    (folder / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><input type="file" id="file">'
        f'<script type="module">import * as bide from "{service.url}/ui/bide.js"; window.bide = bide;</script>'
    )
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{url}/index.html")
    page.wait_for_function("window.bide", timeout=60_000)
    yield page
    page.close()
    assert errors == []


def test_submit_wait_and_cancel(page: Any, tmp_path: Path) -> None:
    """The URL of the service is that of the module."""
    said = page.evaluate(
        """async (path) => {
          const client = new bide.Client();
          const seen = [];
          const job = await client.submit("count", { total: 3, seconds: 0.3 });
          const result = await job.result({ timeout: 30, onChange: ({ progress }) => seen.push(progress?.done ?? 0) });
          const endless = await client.submit("until_there", { path });
          await endless.cancel();
          const { status } = await endless.wait({ timeout: 30 });
          const rejected = await client.submit("add", { a: "x" }).catch((error) => error);
          return [result, seen, status, [rejected.status, rejected.problem.errors.length]];
        }""",
        str(tmp_path / "never"),
    )
    result, seen, status, problem = said
    assert result == {"counted": 3} and seen == sorted(seen) and len(seen) >= 3
    assert (status, problem) == ("CANCELLED", [422, 1])


def test_a_file_that_the_user_chooses_is_uploaded(page: Any, tmp_path: Path) -> None:
    source = tmp_path / "film.mp4"
    source.write_bytes(CONTENT)
    page.set_input_files("#file", str(source))
    said = page.evaluate(
        """async () => {
          const [file] = document.getElementById("file").files;
          const client = new bide.Client();
          const seen = [];
          let upload;
          upload = client.upload(file, { kind: "look", pieceSize: 1_000_000, onProgress: (sent) => {
            seen.push(sent);
            if (sent === 1_000_000) { upload.pause(); setTimeout(() => upload.resume(), 50); }
          } });
          const { job } = await upload.done;
          const form = await client.submit("look", {}, { files: { file } });
          return [await job.result(), seen, (await form.result()).sha256];
        }"""
    )
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    result, seen, by_form = said
    assert (result["sha256"], result["name"], result["type"]) == (sha256, "film.mp4", "video/mp4")
    assert by_form == sha256
    assert seen == [0, 1_000_000, 2_000_000, 3_000_000]


def test_events_reach_the_page_and_resume(page: Any, service: ServiceProcess, tmp_path: Path) -> None:
    """The service is killed while the page listens."""
    go = tmp_path / "go"
    page.evaluate(
        """async (path) => {
          const client = new bide.Client();
          const job = await client.submit("until_there", { path });
          window.seen = []; window.interrupted = 0; window.over = false;
          (async () => {
            for await (const event of job.events({ onInterrupt: () => (window.interrupted += 1) })) window.seen.push(event);
            window.over = true;
          })();
        }""",
        str(go),
    )
    page.wait_for_function(
        "seen.length > 0 && (seen.at(-1).snapshot ?? seen.at(-1).job).status === 'PROCESSING'"
    )
    service.kill(alone=False)
    page.wait_for_function("interrupted > 0")
    service.start()
    go.write_text("there")
    page.wait_for_function("over", timeout=60_000)
    seen = page.evaluate(
        "seen.map(({ type, id, job, snapshot }) => [type, id, (job ?? snapshot).status])"
    )
    assert [type for type, _, _ in seen].count("snapshot") == 1
    assert [status for type, _, status in seen if type == "status"][-1] == "DONE"
    ids = [id for type, id, _ in seen if id and type != "snapshot"]
    assert len(set(ids)) == len(ids)


def test_the_page_of_the_guide_shows_a_live_bar(
    browser: Any, site: tuple[str, Path], tmp_path: Path
) -> None:
    """docs/howto/notify-a-browser.md, with its own app."""
    url, folder = site
    titled = {block.title: block.text for block in blocks(ROOT / "docs/howto/notify-a-browser.md")}
    (tmp_path / "tasks.py").write_text(titled["tasks.py"])
    env = {"PYTHONPATH": str(tmp_path)}
    service = ServiceProcess(tmp_path, "tasks:app", workers=1, env=env, options=("--origin", url))
    service.start()
    try:
        text = titled["index.html"]
        assert len(re.findall(r"\S.*\n", text[text.index("<script") :])) <= 30
        (folder / "guide.html").write_text(text.replace("http://127.0.0.1:8642", service.url))
        page = browser.new_page()
        page.goto(f"{url}/guide.html")
        page.click("#start")
        page.wait_for_function("bar.value > 5 && bar.value < 60")
        page.reload()  # it finds the job again
        page.wait_for_function("bar.value > 60")
        assert re.fullmatch(r"frame \d+", page.evaluate("text.value"))
        page.wait_for_function("text.value === 'DONE' && bar.value === 100")
        page.click("#start")
        page.wait_for_function("bar.value > 5 && bar.value < 60")
        page.click("#cancel")
        page.wait_for_function("text.value.startsWith('CANCELLED')")
        page.close()
    finally:
        service.stop()


def test_jobs_of_a_vendor_without_a_foreseeable_refusal(browser: Any) -> None:
    """The page is one of the vendor, which lets no other origin in."""
    rules = Rules(requests=40, per=1, burst=5)
    with Vendor(rules, takes=lambda rng: rng.uniform(0.3, 1)) as vendor:
        page = browser.new_page()
        page.route(
            "**/bide.js", lambda route: route.fulfill(path=MODULE, content_type="text/javascript")
        )
        page.goto(vendor.url)
        statuses, refused = page.evaluate(
            """async () => {
              const { Budget, poll } = await import("/bide.js");
              const budget = new Budget({ limit: "40/1s" });
              const start = async () => (await budget.fetch("/v2/generate", { method: "POST" })).json();
              const jobs = await Promise.all(Array.from({ length: 8 }, start));
              const options = { budget, firstInterval: 0.1, timeout: 60 };
              const ended = await Promise.all(jobs.map(({ id }) => poll(`/v2/generate/${id}`, options)));
              return [ended.map(({ status }) => status), budget.refused];
            }"""
        )
        page.close()
        assert (statuses, refused, vendor.refused) == (["COMPLETED"] * 8, 0, 0)


def test_nothing_is_left(service: ServiceProcess) -> None:
    """All jobs of the pages have ended."""
    until(lambda: not service.ask("GET", "/jobs?status=PROCESSING&status=PENDING")["jobs"])
