"""The example of two tenants, in Chromium: sign-in, token, submission, progress, and renewal of the token."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.test_identities import create
from tests.acceptance.test_upload_clients import FLAGS, need_browser
from tests.docs.pages import ROOT
from tests.servers.ports import free_port
from tests.servers.service import ServiceProcess, importing
from tests.waiting import until

EXAMPLE = ROOT / "examples" / "tenants"
TTL = 2.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the backend, beside a service."""
    folder = tmp_path_factory.mktemp("tenants")
    port = free_port()
    path = importing(EXAMPLE)
    url = f"http://127.0.0.1:{port}"
    options = ["--auth", "keys", "--origin", url]
    service = ServiceProcess(folder, "app:app", env=path, options=options)
    for tenant in ("acme", "globex"):
        (folder / f"{tenant}.key").write_text(create(service.data, "--tenant", tenant))
    service.start()
    environment = {**os.environ, **path, "BIDE_URL": service.url, "TOKEN_TTL": str(TTL)}
    command = [sys.executable, "-m", "uvicorn", "backend:site", "--port", str(port)]
    with (folder / "backend.log").open("w") as log:
        backend = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        until(lambda: "running on" in (folder / "backend.log").read_text())
        yield url
    finally:
        backend.terminate()
        backend.wait(30)
        service.stop()
    assert "500 Internal" not in (folder / "backend.log").read_text()


def test_two_tenants_follow_their_own_jobs(site: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=need_browser(), args=list(FLAGS))
        try:
            pages = {user: _sign_in(browser, site, user) for user in ("ann", "bob")}
            for page, _ in pages.values():
                page.click("#submit button")
            jobs = {user: _job(page) for user, (page, _) in pages.items()}
            for user, (page, seen) in pages.items():
                page.wait_for_function(
                    "document.querySelector('li').textContent.startsWith('DONE: Sales, 20 pages')",
                    timeout=60_000,
                )
                # The job takes longer than a token is valid: the page has renewed it, without a message of an error.
                assert seen.count("POST /token 200") >= 3, seen
                streams = [line for line in seen if line.startswith(f"GET /jobs/{jobs[user]}/events")]
                assert len(streams) >= 2 and set(streams) == {streams[0]}, streams
                assert page.text_content("#message").startswith(user)
                shown = page.evaluate("window.shown")
                numbers = [int(text.split()[0]) for text in shown if " of " in text]
                assert numbers == sorted(numbers) and len(numbers) >= 10, shown
            for user, other in (("ann", "bob"), ("bob", "ann")):
                status = """async (job) => {
                  const { token, service } = await (await fetch("token", { method: "POST" })).json();
                  const headers = { Authorization: `Bearer ${token}` };
                  return (await fetch(`${service}/jobs/${job}`, { headers })).status;
                }"""
                assert pages[user][0].evaluate(status, jobs[user]) == 200
                assert pages[user][0].evaluate(status, jobs[other]) == 404
        finally:
            browser.close()


def _sign_in(browser: Any, site: str, user: str) -> tuple[Any, list[str]]:
    """A page of a user in a browser of its own, and the requests that it has sent with their statuses."""
    page = browser.new_context().new_page()
    seen: list[str] = []

    def note(response: Any) -> None:
        path = response.url.split("/", 3)[3].partition("?")[0]
        seen.append(f"{response.request.method} /{path} {response.status}")

    page.on("response", note)
    page.goto(site)
    page.fill("[name=user]", user)
    page.fill("[name=password]", "wrong")
    page.click("#login button")
    page.wait_for_function(
        "document.getElementById('message').textContent.includes('wrong')", timeout=60_000
    )
    page.fill("[name=password]", f"{user}-secret")
    page.click("#login button")
    page.wait_for_selector("#submit:not([hidden])", timeout=60_000)
    page.evaluate(
        """() => {
          window.shown = [];
          const note = () => window.shown.push(document.querySelector("li")?.textContent ?? "");
          new MutationObserver(note).observe(document.getElementById("jobs"), { childList: true, subtree: true });
        }"""
    )
    return page, seen


def _job(page: Any) -> str:
    page.wait_for_selector("li[data-job]", timeout=60_000)
    job: str = page.evaluate("document.querySelector('li').dataset.job")
    return job
