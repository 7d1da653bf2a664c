"""A real browser with pages that mean harm: what they send to a service that they cannot reach otherwise. And its WebSocket,
on pages that may use it.
"""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.test_upload_clients import FLAGS, Pages, need_browser
from tests.servers.service import ServiceProcess

FORM = """
<form method="post" enctype="text/plain" action="http://jobs.example:{port}/queues/default/pause">
<input name="a"></form>
"""
# Sends the messages, and returns what it hears until it is closed, or until `count` messages.
SOCKET = """
([url, messages, count]) => new Promise(resolve => {
  const socket = new WebSocket(url, "bide.v1");
  const heard = [];
  socket.onopen = () => messages.forEach(message => socket.send(message));
  socket.onmessage = event => {
    heard.push(JSON.parse(event.data));
    if (heard.length === count) socket.close(1000);
  };
  socket.onclose = event => resolve({heard, code: event.code, reason: event.reason, protocol: socket.protocol});
})
"""
# Names without a DNS lookup: both are this machine.
RULES = "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP jobs.example 127.0.0.1"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    options = ["--trusted-hosts", "jobs.example"]
    service = ServiceProcess(folder, "tests.apps.echo:app", workers=1, options=options)
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def page(service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page of http://evil.example, over plain HTTP: the browser sends no Sec-Fetch-Site with its requests."""
    playwright = pytest.importorskip("playwright.sync_api")
    place = tmp_path_factory.mktemp("pages")
    (place / "index.html").write_text(FORM.format(port=service.port))
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Pages, directory=str(place))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with playwright.sync_playwright() as play:
            browser = play.chromium.launch(executable_path=need_browser(), args=[*FLAGS, RULES])
            page = browser.new_page()
            page.goto(f"http://evil.example:{server.server_address[1]}/")
            yield page
            browser.close()
    finally:
        server.shutdown()
        server.server_close()


def paused(service: ServiceProcess) -> bool:
    return any(queue["paused"] for queue in service.ask("GET", "/queues")["queues"])


def test_a_form_of_another_site_pauses_no_queue(service: ServiceProcess, page: Any) -> None:
    with page.expect_response("**/pause") as waiting:
        page.evaluate("document.forms[0].submit()")
    answer = waiting.value
    sent = answer.request.all_headers()
    assert sent["origin"].startswith("http://evil.example") and "sec-fetch-site" not in sent
    assert (answer.status, answer.json()["code"]) == (403, "cross-site")
    assert not paused(service)


def test_a_name_that_now_leads_here_is_not_answered(service: ServiceProcess, page: Any) -> None:
    answer = page.goto(f"http://evil.example:{service.port}/jobs")
    assert (answer.status, answer.json()["code"]) == (400, "untrusted-host")
    found = page.evaluate("fetch('/queues/default/pause', {method: 'POST'}).then(a => a.status)")
    assert found == 400
    assert not paused(service)


def test_a_page_of_another_site_gets_no_websocket(service: ServiceProcess, page: Any) -> None:
    subscribe = json.dumps({"subscribe": {"filter": {}}})
    found = page.evaluate(SOCKET, [f"ws://jobs.example:{service.port}/ws", [subscribe], 1])
    assert (found["heard"], found["code"]) == ([], 1006)


def test_the_services_own_page_may(service: ServiceProcess, page: Any) -> None:
    page.goto(f"http://jobs.example:{service.port}/healthz")
    found = page.evaluate("fetch('/queues/default/pause', {method: 'POST'}).then(a => a.status)")
    assert found == 200
    assert paused(service)


def test_the_services_own_page_hears_of_a_job_by_websocket(service: ServiceProcess, page: Any) -> None:
    url = f"ws://jobs.example:{service.port}/ws"
    page.goto(f"http://jobs.example:{service.port}/healthz")
    assert service.ask("POST", "/queues/default/resume")["paused"] is False
    job = service.ask("POST", "/jobs", {"kind": "echo", "input": {"value": 1}})
    done = service.ask("GET", f"/jobs/{job['jobId']}", headers={"Prefer": "wait=30"})
    assert done["status"] == "DONE"
    events = service.ask("GET", f"/jobs/{job['jobId']}/events")["events"]
    begin = events[0]["id"].partition("-")[0] + "-0"
    subscribe = json.dumps({"subscribe": {"jobs": [job["jobId"]]}, "after": begin})
    found = page.evaluate(SOCKET, [url, [subscribe], len(events) + 1])
    assert (found["code"], found["protocol"]) == (1000, "bide.v1")
    assert found["heard"][:-1] == events
    assert (found["heard"][-1]["type"], found["heard"][-1]["jobId"]) == ("end", job["jobId"])
    for messages, code, reason in (
        (["garbage"], 1007, "the message is invalid"),
        (["x" * 10_000_000], 1009, "exceeds limit"),
        (
            [json.dumps({"subscribe": {"jobs": [f"{i}-{j}" for j in range(1000)]}}) for i in range(10)],
            1008,
            "1000 jobs",
        ),
    ):
        found = page.evaluate(SOCKET, [url, messages, 0])
        assert found["code"] == code and reason in found["reason"]
