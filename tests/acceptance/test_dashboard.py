"""The dashboard in Chromium: every page, live, with the keyboard, with hostile data, and without barriers."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.acceptance.test_identities import bide, create
from tests.acceptance.test_upload_clients import FLAGS, need_browser, need_package
from tests.servers.oidc_provider import CLIENT, SECRET, OidcProvider
from tests.servers.ports import free_port
from tests.servers.service import ServiceProcess
from tests.waiting import until

HOSTILE = (
    '<img src=x onerror="window.hit=1"><script>window.hit=2</script><svg onload="window.hit=3">'
    "\u202efdp.exe javascript:alert(1)"
)
WAIT = 20_000


# Adds up how far elements have moved that the user did not move: https://web.dev/articles/cls
SHIFTS = """
window.shifts = 0;
const add = (list) => list.getEntries().forEach((entry) => {
  if (!entry.hadRecentInput) window.shifts += entry.value;
});
new PerformanceObserver(add).observe({ type: "layout-shift" });
"""


# The serious findings of axe-core, without the long list of rules that pass.
COLOURS = ["color-contrast", "link-in-text-block"]  # the rules whose outcome another theme can change
SERIOUS = """
async (rules) => {
  const only = rules ? { runOnly: { type: "rule", values: rules } } : {};
  const { violations } = await axe.run({ resultTypes: ["violations"], ...only });
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => ({ id, nodes: nodes.slice(0, 3).map(({ html }) => html.slice(0, 200)) }));
}
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "bide.toml").write_text("[admission.queues.press]\nbacklog = 3\n")
    process = ServiceProcess(
        folder,
        "tests.apps.dashboard:app",
        workers=4,
        env={"BIDE_CONFIG": str(folder / "bide.toml")},
        options=["--webhooks-allow-private"],
    )
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
def page(browser: Any, service: ServiceProcess) -> Iterator[Any]:
    """A tab; an error in a script, a broken policy or a request to another host fails the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, timezone_id="Europe/Berlin")
    page = context.new_page()
    page.set_default_timeout(WAIT)
    page.add_init_script(SHIFTS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
    page.on("request", lambda sent: None if sent.url.startswith(service.url) else wrong.append(sent.url))
    yield page
    hit = page.evaluate("window.hit")
    context.close()
    assert wrong == [] and hit is None


def submit(service: ServiceProcess, kind: str, input: dict[str, Any], **more: Any) -> str:
    job: str = service.ask("POST", "/jobs", {"kind": kind, "input": input, **more})["jobId"]
    return job


def ended(service: ServiceProcess, job: str) -> dict[str, Any]:
    found: dict[str, Any] = service.ask("GET", f"/jobs/{job}", headers={"Prefer": "wait=30"})
    return found


def show(page: Any, service: ServiceProcess, place: str = "#/") -> None:
    page.goto(f"{service.url}/{place}")
    page.wait_for_selector("main h1")


def test_before_the_first_job_the_overview_says_what_to_do(page: Any, service: ServiceProcess) -> None:
    show(page, service)
    page.wait_for_selector("text=No jobs yet")
    assert "curl" in page.inner_text(".command pre")
    submit(service, "export", {"table": "customers"})
    page.wait_for_selector("text=In progress")  # without a reload


def test_a_running_job_moves_and_ends_while_it_is_watched(
    page: Any, service: ServiceProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    show(page, service)
    job = submit(service, "until_there", {"path": str(go)}, labels={"name": "film.mov"})
    row = page.wait_for_selector(f'.running a[href="#/jobs/{job}"]')
    page.wait_for_function("() => document.querySelector('.connection').textContent.startsWith('Live')")
    page.wait_for_selector(f'.running a[href="#/jobs/{job}"] [aria-valuenow="60"]')
    page.wait_for_selector("table.queues td.wait:text-is('under 1 s')")
    page.evaluate("window.shifts = 0")
    other = submit(service, "until_there", {"path": str(go)})  # waits: the queue has one slot
    page.wait_for_selector("table.queues tr:has-text('batch') td:nth-child(2):has-text('1')")
    assert page.evaluate("window.shifts") < 0.01
    service.ask("POST", f"/jobs/{other}/cancel")
    row.click()
    page.wait_for_selector(".badge.s-PROCESSING")
    page.wait_for_selector(".timeline li")
    page.evaluate("window.shifts = 0")
    go.touch()
    page.wait_for_selector(".badge.s-DONE")
    assert page.evaluate("window.shifts") < 0.05
    assert page.inner_text("h1") == "film.mov"
    assert page.inner_text("#announcer") == "The job is Done"
    assert "there" in page.inner_text("section:has(h2:text-is('Result'))")


def test_filters_are_in_the_address_and_survive_a_reload(page: Any, service: ServiceProcess) -> None:
    wanted = submit(service, "ocr", {"document": "a.pdf", "fail": "OCR_TIMEOUT"}, labels={"team": "ops"})
    other = submit(service, "ocr", {"document": "b.pdf"}, labels={"team": "legal"})
    assert ended(service, wanted)["status"] == "ERROR" and ended(service, other)["status"] == "DONE"
    show(page, service, "#/jobs")
    page.wait_for_selector(f'tr[data-id="{other}"]')
    page.select_option("select[aria-label='Filter by status']", "ERROR")
    page.wait_for_selector(f'tr[data-id="{other}"]', state="detached")
    page.keyboard.press("/")
    page.keyboard.type("label.team:ops")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('q=label.team')")
    assert "OCR_TIMEOUT" in page.inner_text(f'tr[data-id="{wanted}"]')
    page.reload()
    page.wait_for_selector(f'tr[data-id="{wanted}"]')
    assert page.input_value("#q") == "label.team:ops"
    assert "Error" in page.inner_text(".chip.set")
    page.fill("#q", "nonsense:1")
    page.press("#q", "Enter")
    assert "nonsense" in page.wait_for_selector(".invalid-note:visible").inner_text()


def test_the_search_suggests_fields_and_values(page: Any, service: ServiceProcess) -> None:
    job = submit(service, "export", {"table": "a"})
    ended(service, job)
    show(page, service, "#/jobs")
    page.wait_for_selector(f'tr[data-id="{job}"]')
    page.keyboard.press("/")
    page.keyboard.type("ki")
    page.wait_for_selector("#suggestions li >> text=kind of job")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#q", "aria-activedescendant") == "option-0"
    page.keyboard.press("Enter")
    assert page.input_value("#q") == "kind:"
    page.keyboard.type("exp")
    page.click("#suggestions li:has-text('kind:export')")
    assert page.input_value("#q") == "kind:export "
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('q=kind%3Aexport')")
    assert page.get_attribute("#q", "aria-expanded") == "false"


def test_pages_follow_each_other_in_each_order(page: Any, service: ServiceProcess) -> None:
    one = {"kind": "render", "input": {"scene": "a"}, "labels": {"page": "many"}}
    service.ask("POST", "/queues/gpu/pause")
    ids = [job["jobId"] for job in service.ask("POST", "/jobs/batch", {"jobs": [one] * 60})["jobs"]]
    first, last = min(ids), max(ids)  # those of the same millisecond have no order
    show(page, service, "#/jobs?label=page:many")
    page.wait_for_selector(f'tr[data-id="{last}"]')
    assert "60 match" in page.inner_text(".head") and "1 – 50 of 60" in page.inner_text("footer")
    page.click("button:has-text('Older')")
    page.wait_for_selector(f'tr[data-id="{first}"]')
    assert "51 – 60 of 60" in page.inner_text("footer")
    page.click("button:has-text('Newer')")
    page.wait_for_selector(f'tr[data-id="{last}"]')
    page.select_option("select[aria-label='Order']", "oldest")
    page.wait_for_selector(f'tr[data-id="{first}"]')
    assert "order=oldest" in page.url
    cell = f'tr[data-id="{first}"] time'
    page.hover(cell)
    created = page.get_attribute(cell, "datetime")
    assert created[11:16] in page.inner_text(".tip dd:nth-of-type(2)")  # UTC
    local = page.inner_text(".tip dd:nth-of-type(1)")
    assert created[11:13] not in local.split(" ")[-1][:2]  # Berlin is ahead of it
    service.ask("POST", "/bulk", {"action": "cancel", "filter": {"label": "page:many"}})
    until(lambda: service.ask("GET", "/jobs?label=page:many&status=PENDING")["jobs"] == [])
    service.ask("POST", "/queues/gpu/resume")


def test_the_overview_shows_plots_failures_and_warnings(
    page: Any, service: ServiceProcess, hook: str
) -> None:
    gone = service.ask("POST", "/webhooks", {"url": f"{hook}gone", "events": ["terminal"]})
    for fail in ("", "OCR_TIMEOUT"):
        ended(service, submit(service, "ocr", {"document": "a", "fail": fail}))
    until(lambda: service.ask("GET", "/readyz")["warnings"])
    show(page, service)
    page.wait_for_selector(".warnings li:has-text('webhook-disabled') a:has-text('See webhooks')")
    page.request.delete(f"{service.url}/webhooks/{gone['id']}")
    bars = page.locator("section:has(h2:text-is('Throughput'))")
    times = page.locator("section:has(h2:text-is('Run time'))")
    page.wait_for_selector("rect.p-done")
    page.wait_for_selector("rect.p-error")
    assert "jobs per minute" in bars.inner_text()
    assert "0" in bars.locator("text.axis").all_text_contents()
    units = [text[-1] for text in times.locator("text.axis[text-anchor=end]").all_text_contents()[1:]]
    assert units and set(units) <= {"s", "m", "h"}
    drawing = bars.locator(".drawing-area")
    assert "done" in drawing.get_attribute("aria-label")
    drawing.focus()
    page.keyboard.press("ArrowLeft")
    assert "Done" in bars.locator(".plot-tip").inner_text()
    bars.locator("button:has-text('Show as table')").click()
    assert bars.locator(".plot-table tbody tr").count() >= 1
    page.click(".codes a:has-text('OCR_TIMEOUT')")
    page.wait_for_selector("tr[data-id] >> text=OCR_TIMEOUT")
    assert "code=OCR_TIMEOUT" in page.url


def test_the_log_has_levels_and_search(page: Any, service: ServiceProcess) -> None:
    job = submit(service, "transcode", {"source": "s3://raw/a.mov"})
    ended(service, job)
    show(page, service, f"#/jobs/{job}")
    lines = page.locator(".log p")
    page.wait_for_selector(".log p >> text=probing")
    page.click("button:text-is('Warn')")
    page.wait_for_selector(".log p >> text=macroblocks")
    assert lines.count() == 1
    page.click("button:text-is('All')")
    page.wait_for_selector(".log p >> text=chunk 0010")
    page.fill("input[aria-label='Search the log']", "chunk 0030")
    page.wait_for_function("() => document.querySelectorAll('.log p').length === 1")
    page.fill("input[aria-label='Search the log']", "no such line")
    page.wait_for_selector(".log >> text=No line matches")
    assert page.locator(".output p").count() == 6


def test_ten_tabs_stay_live(browser: Any, service: ServiceProcess) -> None:
    """A browser allows six HTTP/1.1 connections to a host; WebSockets do not count."""
    context = browser.new_context()
    pages = [context.new_page() for _ in range(10)]
    for page in pages:
        page.goto(f"{service.url}/#/jobs?label=tabs:ten")
    for page in pages:
        page.wait_for_selector("html[data-connection=live]", timeout=WAIT)
        page.wait_for_selector("text=No job matches", timeout=WAIT)
    job = submit(service, "export", {"table": "a"}, labels={"tabs": "ten"})
    for page in pages:
        page.wait_for_selector(f'tr[data-id="{job}"] .s-DONE', timeout=WAIT)
    context.close()


def test_the_keyboard_reaches_everything(page: Any, service: ServiceProcess) -> None:
    jobs = [submit(service, "export", {"table": str(number)}) for number in range(3)]
    ended(service, jobs[-1])
    show(page, service)
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_selector(f'tr[data-id="{jobs[0]}"]')
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.evaluate("document.activeElement.dataset.id")
    assert second == page.evaluate("document.querySelectorAll('tr[data-id]')[1].dataset.id")
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => location.hash === '#/jobs/{second}'")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open] >> text=Keyboard")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_selector("h1:text-is('Queues')")


def test_a_failed_job_shows_its_traceback_and_runs_again(page: Any, service: ServiceProcess) -> None:
    job = submit(service, "ocr", {"document": "a.pdf", "fail": "bug", "token": "sesame-open"})
    assert ended(service, job)["status"] == "ERROR"
    show(page, service, f"#/jobs/{job}")
    page.wait_for_selector(".traceback .final")
    assert page.inner_text(".traceback .final").startswith("ValueError: page 20 has no text")
    assert page.locator(".timeline li").count() >= 4  # pending, then attempts and retries
    assert page.locator("section:has(h2:text-is('Attempts')) li").count() == 3
    assert "hidden (secret)" in page.inner_text(".json") and "sesame" not in page.content()
    page.click("button:has-text('Retry')")
    page.click("dialog button:has-text('Retry')")
    page.wait_for_selector(".toast >> text=The job runs again")
    until(lambda: len(service.ask("GET", f"/jobs/{job}?include=attempts")["attempts"]) >= 4)
    page.wait_for_selector(".badge.s-ERROR")


def test_a_running_job_is_cancelled(page: Any, service: ServiceProcess, tmp_path: Path) -> None:
    job = submit(service, "until_there", {"path": str(tmp_path / "never")})
    show(page, service, f"#/jobs/{job}")
    page.wait_for_selector(".badge.s-PROCESSING")
    page.keyboard.press("c")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate("document.activeElement.textContent") == "Keep it running"  # the safe one
    page.click("dialog button:has-text('Cancel the job')")
    page.wait_for_selector(".badge.s-CANCELLED")


def test_actions_apply_to_the_selected_jobs(page: Any, service: ServiceProcess) -> None:
    labels = {"batch": "some"}
    jobs = [submit(service, "ocr", {"document": "a", "fail": "NO"}, labels=labels) for _ in range(4)]
    for job in jobs:
        assert ended(service, job)["status"] == "ERROR"
    page.set_viewport_size({"width": 1400, "height": 420})  # the list scrolls
    show(page, service, "#/jobs?label=batch:some")
    page.click(f'tr[data-id="{jobs[3]}"] input')
    assert "1 job selected" in page.inner_text(".bulk")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert "2 jobs selected" in page.inner_text(".bulk")
    page.keyboard.press("j")
    page.keyboard.press("Shift+X")
    assert "3 jobs selected" in page.inner_text(".bulk")
    page.keyboard.press("x")  # the third one, again
    page.keyboard.press("Escape")
    page.wait_for_selector(".bulk", state="hidden")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("Shift+X")
    assert page.is_disabled(".bulk button:has-text('Cancel')")
    assert "unfinished" in page.get_attribute(".bulk button:has-text('Cancel')", "title")
    page.evaluate("scrollTo(0, 40)")
    before = page.evaluate("scrollY")
    assert before == 40
    page.click(".bulk button:has-text('Retry')")
    page.wait_for_selector("dialog >> text=Retry 2 jobs?")
    page.click("dialog button:has-text('Retry 2 jobs')")
    page.wait_for_selector(".toast a:has-text('Show progress')")
    page.wait_for_selector(".bulk", state="hidden")
    assert "label=batch" in page.url and page.evaluate("scrollY") == before
    assert page.evaluate("document.activeElement.dataset.id") == jobs[0]

    def attempts() -> list[int]:
        found = [service.ask("GET", f"/jobs/{job}?include=attempts") for job in jobs]
        return [len(job["attempts"]) for job in found]

    until(lambda: attempts()[:2] == [6, 6])  # the service runs the action after its response
    assert attempts() == [6, 6, 3, 3]  # the others were not selected


def test_actions_apply_to_all_that_match(page: Any, service: ServiceProcess) -> None:
    labels = {"batch": "bulk"}
    jobs = [submit(service, "ocr", {"document": "a", "fail": "NO"}, labels=labels) for _ in range(3)]
    for job in jobs:
        assert ended(service, job)["status"] == "ERROR"
    show(page, service, "#/jobs?label=batch:bulk&status=DONE&status=ERROR")
    page.wait_for_selector(f'tr[data-id="{jobs[0]}"]')
    page.click("input[aria-label='Select this page']")
    assert "3 jobs selected" in page.inner_text(".bulk")
    page.click(".bulk button:has-text('Select all that match')")
    page.wait_for_selector(".bulk >> text=All 3 that match")
    page.click(".bulk button:has-text('select only these 3')")
    page.wait_for_selector(".bulk >> text=3 jobs selected")
    page.click(".bulk button:has-text('Select all that match')")
    assert page.is_disabled(".bulk button:has-text('Priority')")
    page.click(".bulk button:has-text('Delete')")
    page.wait_for_selector("dialog >> text=Delete 3 jobs?")
    assert page.is_disabled("dialog button:has-text('Delete 3 jobs')")
    page.fill("#typed", "3")
    page.click("dialog button:has-text('Delete 3 jobs')")
    page.wait_for_selector(".toast a:has-text('Show progress')")
    page.wait_for_selector("text=No job matches")
    assert "label=batch" in page.url  # the filter stays
    assert service.ask("GET", "/jobs?label=batch:bulk")["jobs"] == []


def test_waiting_jobs_get_another_priority(page: Any, service: ServiceProcess) -> None:
    service.ask("POST", "/queues/gpu/pause")
    job = submit(service, "render", {"scene": "a"}, labels={"batch": "later"})
    show(page, service, "#/jobs?label=batch:later")
    page.click(f'tr[data-id="{job}"] input')
    page.click(".bulk button:has-text('Priority')")
    page.fill("#typed", "7")
    page.press("#typed", "Enter")
    page.wait_for_selector(".toast a:has-text('Show progress')")
    until(lambda: service.ask("GET", f"/jobs/{job}")["priority"] == 7)
    service.ask("POST", "/queues/gpu/resume")


def test_a_queue_is_paused_and_resumed(page: Any, service: ServiceProcess) -> None:
    show(page, service, "#/queues")
    page.click("button[aria-label='Pause gpu']")
    page.click("dialog button:has-text('Pause')")
    page.click("button[aria-label='Resume gpu']")
    page.wait_for_selector("button[aria-label='Pause gpu']")
    assert not any(queue["paused"] for queue in service.ask("GET", "/queues")["queues"])


def test_breakers_retry_budgets_and_back_pressure_are_shown(page: Any, service: ServiceProcess) -> None:
    show(page, service)
    jobs = [submit(service, kind, {}) for kind in ("charge", "flaky")]
    page.wait_for_selector(".warnings li:has-text('breaker-open'):has-text('vendor')")
    until(lambda: any(one["waiting"] for one in service.ask("GET", "/queues")["retryBudgets"]))
    service.ask("POST", "/queues/press/pause")
    refusal = ".warnings li:has-text('overloaded'):has-text('press')"

    def refused() -> bool:
        """Whether the warning is shown. It is there for some seconds after a refusal."""
        answer = page.request.post(f"{service.url}/jobs", data={"kind": "charge"})
        if answer.status == 202:
            jobs.append(answer.json()["jobId"])
            return False
        assert (answer.status, answer.json()["code"]) == (503, "overloaded")
        return bool(page.locator(refusal).count())

    until(refused)
    page.click(".warnings li:has-text('breaker-open') a:has-text('Open queues')")
    page.wait_for_selector(
        ".warnings li:has-text('Breaker vendor is open since'):has-text('next probe')"
    )
    page.wait_for_selector(".warnings li:has-text('Kind flaky has too many retries: 1 job waits')")
    for job in jobs:
        service.ask("POST", f"/jobs/{job}/cancel")
    service.ask("POST", "/queues/press/resume")


def test_a_form_submits_a_job_and_names_what_is_wrong(page: Any, service: ServiceProcess) -> None:
    show(page, service, "#/submit?kind=transcode")
    page.fill("label:has-text('source') + input", "s3://raw/a.mov")
    page.fill("label:has-text('seconds') + input", "")
    page.select_option("select[aria-label='height']", label="1080")
    page.click("summary:text-is('Queue, priority, labels')")
    page.fill("label:has-text('queue') + input", "no-such-queue")
    page.click("button:has-text('Submit job')")
    page.wait_for_selector("form > .invalid-note:not(:empty)")
    page.fill("label:has-text('queue') + input", "")
    page.click("button:has-text('Submit job')")
    page.wait_for_selector(".badge.s-DONE")
    assert '"height": 1080' in page.inner_text("section:has(h2:text-is('Input'))")
    page.click("text=Run again with edited input")
    page.wait_for_selector("form")
    assert page.input_value("label:has-text('source') + input") == "s3://raw/a.mov"


def test_a_chosen_file_becomes_a_job(page: Any, service: ServiceProcess, tmp_path: Path) -> None:
    source = tmp_path / "film.bin"
    source.write_bytes(b"x" * 300_000)
    show(page, service, "#/submit?kind=measure")
    page.set_input_files("input[type=file]", str(source))
    page.click("button:has-text('Submit job')")
    page.wait_for_selector(".badge.s-DONE")
    assert "300000" in page.inner_text("section:has(h2:text-is('Result'))")


def test_the_upload_of_a_dropped_file_is_paused_and_resumed(page: Any, service: ServiceProcess) -> None:
    show(page, service, "#/submit?kind=measure")
    dropped = page.evaluate_handle(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["x".repeat(3_000_000)], "film.bin"));
            return data;
        }"""
    )
    page.dispatch_event(".drop", "dragover", {"dataTransfer": dropped})
    assert page.locator(".drop.over").count() == 1
    page.dispatch_event(".drop", "drop", {"dataTransfer": dropped})
    assert "film.bin · 3.0 MB" in page.inner_text(".drop").replace("\u202f", " ")
    pieces: list[Any] = []

    def hold(route: Any) -> None:
        """The service gets the first piece; the second one stays in the browser until the upload is resumed."""
        if route.request.method == "PATCH":
            pieces.append(route)
        if len(pieces) != 2:
            route.continue_()

    page.route("**/files/*", hold)
    page.click("button:has-text('Submit job')")
    page.wait_for_selector(".sending :text('1.0\u202fMB of 3.0\u202fMB')")
    page.click(".sending button:has-text('Pause')")
    page.wait_for_selector(".sending button:has-text('Resume')")
    place = service.ask("GET", "/uploads?status=UPLOADING")["uploads"]
    assert [(upload["name"], upload["received"]) for upload in place] == [("film.bin", 1024 * 1024)]
    page.wait_for_timeout(300)  # for a piece that must not be sent
    assert len(pieces) == 2
    pieces.append(None)  # from now on, all of them pass
    page.click(".sending button:has-text('Resume')")
    page.wait_for_selector(".badge.s-DONE")
    assert "3000000" in page.inner_text("section:has(h2:text-is('Result'))")
    page.unroute("**/files/*")


def test_uploads_are_shown_and_deleted(page: Any, service: ServiceProcess) -> None:
    tus = {"Tus-Resumable": "1.0.0", "Upload-Length": "1000", "Upload-Metadata": "filename ZmlsbS5tb3Y="}
    begun = page.request.post(f"{service.url}/files", headers=tus)
    assert begun.status == 201
    page.request.post(f"{service.url}/uploads?name=notes.txt", data="hello")
    show(page, service, "#/uploads")
    row = "section:has(h2:text-is('Under way')) tr:has-text('film.mov')"
    page.wait_for_selector(row)
    assert "0 B of 1.0 KB" in page.inner_text(row).replace("\u202f", " ")
    assert page.inner_text("nav a[data-page=uploads] .note") in ("", "1")
    page.click(f"{row} button")
    page.click("dialog button:has-text('Delete')")
    page.wait_for_selector(row, state="detached")
    assert "5 B" in page.inner_text("tr:has-text('notes.txt')").replace("\u202f", " ")
    place = begun.headers["location"].replace("/files", "/uploads")
    assert page.request.get(service.url + place).status == 410


def test_a_job_leads_to_its_parent_and_children(page: Any, service: ServiceProcess) -> None:
    job = submit(service, "album", {"scenes": ["a", "b"]}, labels={"name": "summer"})
    children = [child["jobId"] for child in ended(service, job)["children"]]
    show(page, service, f"#/jobs/{job}")
    page.click(f"section:has(h2:text-is('Children')) a[href='#/jobs/{children[1]}']")
    page.click("section:has(h2:text-is('Parent and children')) a:has-text('album')")
    page.wait_for_selector("h1 >> text=summer")
    page.click("summary:text-is('View')")  # of a JSON file
    page.wait_for_selector(".shown .json >> text=scenes")
    page.wait_for_function("() => document.querySelector('img.preview')?.naturalWidth === 1")


class Hook(http.server.BaseHTTPRequestHandler):
    """Keeps the bodies that it receives."""

    bodies: list[str] = []  # noqa: RUF012 — of all instances

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])).decode())
        self.send_response(410 if self.path == "/gone" else 204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def hook() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def test_a_secret_of_the_input_is_shown_nowhere(page: Any, service: ServiceProcess, hook: str) -> None:
    """Lists, one job, log, events, output, webhooks, the page and the log of the service."""
    types = ["status", "step", "log", "output", "deleted"]
    service.ask("POST", "/webhooks", {"url": hook, "events": types, "kinds": ["leak"]})
    token = "sesame-4711"
    show(page, service, "#/jobs")
    job = submit(service, "leak", {"token": token, "pin": 471_147}, labels={"name": "leak"})
    assert ended(service, job)["status"] == "ERROR"
    epoch = service.ask("GET", f"/jobs/{job}/events")["events"][0]["id"].partition("-")[0]
    seen = {
        path: json.dumps(service.ask("GET", path))
        for path in (
            f"/jobs/{job}?include=input,attempts,log",
            f"/jobs/{job}/log?level=debug",
            f"/jobs/{job}/events",
            f"/jobs/{job}/stream",
            f"/events?kind=leak&type=output&after={epoch}-0",
            "/jobs?kind=leak",
            f"/jobs?id={job}",
        )
    }
    until(lambda: any('"ERROR"' in body for body in Hook.bodies))
    until(lambda: any('"job.output"' in body for body in Hook.bodies))
    seen["webhooks"] = "".join(Hook.bodies)
    seen["list"] = page.content()
    page.goto(f"{service.url}/#/jobs/{job}")
    page.click("button:text-is('All')")
    page.wait_for_selector(".output p")
    page.wait_for_selector(".traceback .final")
    seen["page"] = page.content()
    said = (service.folder / "serve.log").read_text()
    seen["service"] = said[said.index(f"job {job}") :]  # without what the handler itself has printed
    for place, text in seen.items():
        assert "sesame" not in text and "471147" not in text, place
        assert "[secret]" in text or place in ("service", "list"), place
    assert "hidden (secret)" in page.inner_text(".json")


def test_a_job_shows_the_deliveries_of_webhooks(page: Any, service: ServiceProcess, hook: str) -> None:
    created = service.ask(
        "POST", "/webhooks", {"url": hook, "events": ["terminal"], "kinds": ["render"]}
    )
    job = submit(service, "render", {"scene": "a"})
    ended(service, job)
    show(page, service, "#/webhooks")
    page.wait_for_selector("li:has-text('job.status') >> text=HTTP 204")
    page.click("section:has-text('render') button:has-text('Send a test')")
    page.wait_for_selector(".toast >> text=The endpoint has accepted the test")
    page.goto(f"{service.url}/#/jobs/{job}")
    page.wait_for_selector(".badge.s-DONE")
    page.wait_for_selector(
        "section:has(h2:text-is('Webhook deliveries')) li:has-text('job.status · Done')"
    )
    page.request.delete(f"{service.url}/webhooks/{created['id']}")


def test_workers_show_their_jobs_and_leases(page: Any, service: ServiceProcess, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = submit(service, "until_there", {"path": str(go)})
    show(page, service, "#/workers")
    page.wait_for_selector(f"tr:has-text('Busy') a[href='#/jobs/{job}']")
    page.wait_for_selector("table.leases >> text=Renewed in time")
    go.touch()
    ended(service, job)


def test_hostile_data_is_shown_as_text(page: Any, service: ServiceProcess) -> None:
    labels = {"name": HOSTILE, "team": HOSTILE}
    job = submit(service, "ocr", {"document": HOSTILE, "fail": HOSTILE, "pages": 1}, labels=labels)
    done = ended(service, job)
    long = submit(service, "ocr", {"document": "x" * 900_000}, labels={"name": "y" * 255})
    ended(service, long)
    spread = submit(service, "spread", {"text": HOSTILE}, labels={"name": HOSTILE})
    assert ended(service, spread)["status"] == "DONE"
    page.request.post(f"{service.url}/uploads?name={quote(HOSTILE)}", data="x")
    for place in (
        "#/",
        "#/jobs",
        "#/uploads",
        f"#/jobs?label={quote('team:' + HOSTILE)}",
        f"#/jobs/{long}",
        f"#/jobs/{spread}",
        f"#/jobs/{job}",
    ):
        show(page, service, place)
        page.wait_for_timeout(300)  # for a handler that must not run
        assert page.evaluate("window.hit") is None
        assert page.locator("main img, main script, main a[href^=javascript]").count() == 0
        if place.endswith(spread):
            for panel in (".log", ".output", ".waterfall", "section:has(h2:text-is('Result'))"):
                page.wait_for_selector(f"{panel} >> text=window.hit=1")
            assert page.locator("section:has(h2:text-is('Files')) li").count() == 2
            for name in ("hostile.svg", "<img onerror=hit>.html"):
                with page.expect_download():  # also if a user opens its address
                    page.evaluate(
                        "url => { location.href = url; }", f"jobs/{spread}/files/{quote(name)}"
                    )
    page.wait_for_selector(".error-panel:visible")
    assert page.inner_text("h1") == HOSTILE
    assert page.inner_text(".error-panel .code-name") == done["error"]["code"]


def test_downloads_do_not_run_in_the_origin_of_the_dashboard(page: Any, service: ServiceProcess) -> None:
    job = submit(service, "transcode", {"source": "a"})
    ended(service, job)
    show(page, service, f"#/jobs/{job}")
    with page.expect_download() as waiting:
        page.click("a:has-text('Download')")
    assert waiting.value.suggested_filename == "poster.txt"
    headers = page.request.get(f"{service.url}/jobs/{job}/files/poster.txt").headers
    assert headers["content-disposition"].startswith("attachment")
    assert (
        headers["x-content-type-options"] == "nosniff"
        and "sandbox" in headers["content-security-policy"]
    )


def test_the_page_reconnects_after_a_restart(page: Any, service: ServiceProcess) -> None:
    show(page, service)
    page.wait_for_selector("html[data-connection=live]")
    service.kill(alone=False)
    page.wait_for_selector("html[data-connection=reconnecting]")
    assert page.inner_text("h1") == "Overview"  # what was there stays
    service.start()
    page.wait_for_selector("html[data-connection=live]")


def test_no_page_has_barriers(page: Any, service: ServiceProcess) -> None:
    """axe-core finds nothing serious, in both themes, and nothing is wider than a phone."""
    axe = (need_package("axe-core") / "axe.min.js").read_text()
    failed = submit(service, "ocr", {"document": "a", "fail": "bug"})
    done = submit(service, "transcode", {"source": "a"})
    page.request.post(f"{service.url}/uploads?name=notes.txt", data="hello")
    ended(service, failed)
    ended(service, done)
    places = {  # each with what it shows when it is complete
        "#/": ".codes li",
        "#/jobs?status=ERROR": "tr[data-id]",
        "#/jobs": "tr[data-id]",
        "#/jobs?q=label.a:b": ".empty",
        f"#/jobs/{failed}": ".traceback",
        f"#/jobs/{done}": ".waterfall .span",
        "#/queues": "tbody tr",
        "#/workers": "tbody tr",
        "#/uploads": "tbody tr",
        "#/webhooks": "main .panel",
        "#/submit?kind=transcode": "form",
        "#/submit?kind=measure": ".drop",
    }
    found = {}
    page.emulate_media(reduced_motion="reduce")  # colours change at once
    show(page, service)
    page.evaluate(axe)
    for place, complete in places.items():
        page.evaluate("place => { location.hash = place; }", place)
        page.wait_for_selector(complete)
        if place == "#/jobs?status=ERROR":
            page.click("input[aria-label='Select this page']")
            page.wait_for_selector(".bulk")
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            for one in page.evaluate(SERIOUS, COLOURS if theme == "dark" else None):
                found[place, theme, one["id"]] = one["nodes"]
        page.set_viewport_size({"width": 390, "height": 844})
        root = "document.documentElement"
        if (wider := page.evaluate(f"{root}.scrollWidth - {root}.clientWidth")) > 0:
            found[place, "phone", "overflow"] = [str(wider)]
        page.set_viewport_size({"width": 1400, "height": 900})
    assert not found, json.dumps({" ".join(key): value for key, value in found.items()}, indent=1)


def test_the_theme_is_kept(page: Any, service: ServiceProcess) -> None:
    show(page, service)
    for word in ("Light", "Dark"):
        page.click("button[title='Change the theme']")
        page.wait_for_selector(f"text={word} theme")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(12, 14, 17)"


def test_a_read_only_dashboard_has_no_actions(browser: Any, tmp_path: Path) -> None:
    process = ServiceProcess(
        tmp_path, "tests.apps.dashboard:app", workers=2, options=("--ui", "read-only")
    )
    process.start()
    try:
        job = submit(process, "ocr", {"document": "a", "fail": "NO"})
        ended(process, job)
        page = browser.new_page()
        places = {
            "#/": ".codes li",
            f"#/jobs/{job}": ".waterfall",
            "#/queues": "tbody tr",
            "#/submit": ".empty",
        }
        for place, complete in places.items():
            show(page, process, place)
            page.wait_for_selector(complete)
            assert "Read-only" in page.inner_text("nav")
            for word in ("Submit job", "Retry", "Pause", "Run again"):
                assert page.locator(f"main :is(button, a):has-text('{word}')").count() == 0, (
                    place,
                    word,
                )
        page.close()
    finally:
        process.stop()


MOUNTED = """
import os
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.apps.dashboard import app
jobs = app.asgi(data=os.environ["DATA"])
site = Starlette(routes=[Mount("/ops/jobs", app=jobs)], lifespan=jobs.lifespan)
"""


def test_the_dashboard_of_a_mounted_app(browser: Any, tmp_path: Path) -> None:
    """All its requests, and the WebSocket, are below the path where the app is mounted."""
    (tmp_path / "mounted.py").write_text(MOUNTED)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "mounted:site", "--port", str(port)]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    env = {**os.environ, "DATA": str(tmp_path / "data"), "PYTHONPATH": path}
    log = (tmp_path / "server.log").open("wb")
    with log, subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log) as process:
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        try:
            base = f"http://127.0.0.1:{port}/ops/jobs"
            until(lambda: _answers(f"{base}/healthz"), timeout=60)
            page = context.new_page()
            page.set_default_timeout(WAIT)
            wrong: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on(
                "request", lambda sent: None if sent.url.startswith(base) else wrong.append(sent.url)
            )
            page.goto(f"{base}/")
            page.wait_for_selector("html[data-connection=live]")
            assert f"curl {base}/jobs" in page.wait_for_selector(".command pre").inner_text()
            page.goto(f"{base}/#/submit?kind=transcode")
            page.fill("label:has-text('source') + input", "s3://raw/a.mov")
            page.click("button:has-text('Submit job')")
            page.wait_for_selector(".badge.s-DONE")
            with page.expect_download() as waiting:
                page.click("a:has-text('Download')")
            assert waiting.value.url.startswith(f"{base}/jobs/")
            job = page.url.rpartition("/")[2]
            page.goto(f"{base}/#/jobs")
            page.wait_for_selector(f'tr[data-id="{job}"]')
            assert wrong == []
        finally:
            context.close()
            process.terminate()


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def test_the_dashboard_asks_for_a_key_and_shows_what_it_allows(browser: Any, tmp_path: Path) -> None:
    process = ServiceProcess(tmp_path, "tests.apps.dashboard:app", workers=2, options=("--auth", "keys"))
    admin = create(process.data, "--scope", "read,submit,control,admin")
    reader = create(process.data, "--scope", "read")
    process.start()
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "response",
        lambda got: (
            wrong.append(got.url) if got.status in (401, 403) and "/session" not in got.url else None
        ),
    )

    def sign_in(key: str) -> None:
        page.fill("dialog input[type=password]", key)
        page.keyboard.press("Enter")

    def sign_out(button: str) -> None:
        page.click("nav .foot button:has-text('Sign out')")
        page.click(f"dialog button span:text-is('{button}')")
        page.wait_for_selector("dialog input[type=password]")

    try:
        page.goto(f"{process.url}/#/jobs")
        page.wait_for_selector("dialog input[type=password]")
        page.keyboard.press("Escape")
        sign_in(admin[:-1] + "_")
        page.wait_for_selector("text=The key is not valid")
        sign_in(admin)
        page.wait_for_selector("html[data-connection=live]")
        page.goto(f"{process.url}/#/submit?kind=ocr")
        page.fill("label:has-text('document') + input", "a.pdf")
        page.click("button:has-text('Submit job')")
        page.wait_for_selector(".badge.s-DONE")  # with the CSRF token, and live
        job = page.url.rpartition("/")[2]
        page.goto(f"{process.url}/#/queues")
        page.click("button[aria-label='Pause gpu']")
        page.click("dialog button:has-text('Pause')")
        page.wait_for_selector(".state.paused")
        page.reload()  # the session stays
        page.wait_for_selector(".state.paused")
        sign_out("Sign out everywhere")
        sign_in(reader)
        for place, complete in {
            "#/": ".figures a",
            "#/jobs": f'tr[data-id="{job}"]',
            f"#/jobs/{job}": ".badge.s-DONE",
            "#/queues": ".figures a",  # the overview
            "#/submit": ".empty",
            "#/uploads": ".quiet",
            "#/webhooks": ".quiet",
        }.items():
            page.goto(f"{process.url}/{place}")
            page.wait_for_selector(complete)
            assert "Read-only" in page.inner_text("nav") and "Queues" not in page.inner_text("nav")
            for word in ("Submit job", "Retry", "Pause", "Run again", "Delete"):
                assert page.locator(f"main :is(button, a):has-text('{word}')").count() == 0, place
        page.wait_for_selector("html[data-connection=live]")
        assert wrong == []
        # A session that ends while the page is open.
        bide(
            "keys", "revoke", reader.split("_")[1], "--url", process.url, environment={"BIDE_KEY": admin}
        )
        page.wait_for_selector("dialog :text('The session has ended')")
        sign_in(admin)
        page.wait_for_selector("nav a:has-text('Queues')")
    finally:
        context.close()
        process.stop()


def test_a_user_signs_in_at_a_provider(browser: Any, tmp_path: Path) -> None:
    provider = OidcProvider()
    provider.start()
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    process = ServiceProcess(
        tmp_path,
        "tests.apps.dashboard:app",
        workers=1,
        options=[
            *("--oidc", provider.issuer, "--audience", "bide", "--oidc-client-id", CLIENT),
            *("--oidc-client-secret-file", str(secret), "--log-level", "DEBUG"),
        ],
    )
    process.start()
    provider.redirect_uris = [f"{process.url}/session/oidc/callback"]
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)

    def sign_in() -> None:
        page.click("dialog a:has-text('Sign in with 127.0.0.1')")
        page.click("a:text-is('Continue as Ann')")

    try:
        page.goto(f"{process.url}/#/submit?kind=export")
        sign_in()
        # Back where the user was, with the rights of the claims.
        page.wait_for_function("() => location.hash.startsWith('#/submit')")
        page.wait_for_selector("html[data-connection=live]")
        page.fill("label:has-text('table') + input", "customers")
        page.click("button:has-text('Submit job')")
        page.wait_for_selector(".badge.s-DONE")
        page.click("nav .foot button:has-text('Sign out')")
        assert "oidc:ann, tenant acme" in page.inner_text("dialog")
        page.click("dialog button span:text-is('Sign out')")
        page.wait_for_selector("dialog input[type=password]")
        # The provider refuses; the page says so, and leads back.
        provider.answer = {"error": "access_denied", "error_description": "Ann may not use it."}
        sign_in()
        page.wait_for_selector("h1:text-is('The sign-in failed')")
        assert "access_denied, Ann may not use it." in page.inner_text("body")
        provider.answer = None
        page.click("a:text-is('Try again')")
        page.click("a:text-is('Continue as Ann')")
        page.wait_for_selector("html[data-connection=live]")
        assert wrong == []
    finally:
        context.close()
        process.stop()
        provider.stop()
    log = (tmp_path / "serve.log").read_text()
    assert SECRET not in log and "code=" not in log


# Replaces the WebSocket: about 2,000 events per second, for four seconds, about the jobs that the page shows.
FLOOD = """
window.long = [];
const watch = (list) => list.getEntries().forEach((entry) => window.long.push(entry.duration));
new PerformanceObserver(watch).observe({ type: "longtask" });
window.WebSocket = class {
  static OPEN = 1;
  readyState = 0;
  constructor() { setTimeout(() => { this.readyState = 1; this.onopen(); this.flood(); }, 50); }
  send() {}
  async flood() {
    await new Promise((resolve) => setTimeout(resolve, 2000));
    const { jobs } = await (await fetch("/jobs?limit=50")).json();
    let sent = 0;
    window.long.length = 0;
    const timer = setInterval(() => {
      for (let turn = 0; turn < 40; turn += 1) {
        sent += 1;
        const progress = { percent: sent % 100, message: "m", step: null, done: sent % 9, total: 9, unit: "u" };
        const type = sent % 3 ? "progress" : "status";
        const job = { kind: "ocr", queue: "docs", status: "PROCESSING", version: sent, progress };
        this.onmessage({ data: JSON.stringify({ jobId: jobs[sent % jobs.length].jobId, type, job }) });
      }
    }, 20);
    setTimeout(() => { clearInterval(timer); window.sent = sent; }, 4000);
  }
};
"""


@pytest.mark.soak
@pytest.mark.parametrize("place", ["#/", "#/jobs"])
def test_many_events_do_not_block_the_page(page: Any, service: ServiceProcess, place: str) -> None:
    submit(service, "export", {"table": "a"})
    page.add_init_script(FLOOD)
    show(page, service, place)
    page.wait_for_function("() => window.sent")
    assert page.evaluate("window.sent") > 4000
    assert max(page.evaluate("window.long"), default=0) <= 100  # milliseconds
