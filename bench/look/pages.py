"""The dashboard in headless Chromium with many stored jobs: the first paint, the bytes of its pages, and long tasks while a
stub server sends it 2,000 events per second.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from bench.look.stub import flooding
from bench.service.servers import Site, Unready
from bench.service.table import Line

PAINT_BAR, TASK_BAR = 1000.0, 100.0  # milliseconds
FIRST_BAR, ALL_BAR = 60_000, 120_000  # bytes
LOADS = 5
EVENTS, SECONDS = 2000, 8  # per second, and how long
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
PAGES = {  # each with what it shows when it is complete
    "#/": ".figures a",
    "#/jobs": "tr[data-id]",
    "#/queues": "tbody tr",
    "#/workers": "tbody tr",
    "#/uploads": "main h1",
    "#/webhooks": "main h1",
    "#/submit": "form",
}
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
TASKS = """
window.tasks = [];
new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.tasks.push(entry.duration)))
  .observe({ type: "longtask" });
"""


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        raise Unready("chromium is missing: apt-get install chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def measure(store: str, site: Site) -> list[Line]:
    with chromium() as browser:
        paints = [
            _paint(browser, f"{site.url}/{place}") for place in ("#/", "#/jobs") for _ in range(LOADS)
        ]
        sizes = _sizes(browser, site)
        tasks, events = _tasks(browser, site)
    times = f"{min(paints):.0f} to {max(paints):.0f} ms, {len(paints)} loads without a cache"
    return [
        Line(f"{store}: first contentful paint", median(paints), "≤", PAINT_BAR, "ms", times),
        Line(f"{store}: first page, compressed", sizes[0] / 1000, "≤", FIRST_BAR / 1000, "KB"),
        Line(f"{store}: all pages, compressed", sizes[-1] / 1000, "≤", ALL_BAR / 1000, "KB"),
        Line(
            f"{store}: longest task during 2,000 events per second",
            max(tasks, default=0.0),
            "≤",
            TASK_BAR,
            "ms",
            f"{events} events; {len(tasks)} tasks over 50 ms",
        ),
    ]


def _paint(browser: Any, url: str) -> float:
    """Milliseconds until a page that is not cached shows something."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("main h1")
    page.wait_for_function(f"() => {PAINT} !== undefined")
    found = float(page.evaluate(PAINT))
    context.close()
    return found


def _sizes(browser: Any, site: Site) -> list[int]:
    """The bytes of the files that were loaded with the first page, the second, and so on."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    files: dict[str, int] = {}

    def add(answer: Any) -> None:
        if answer.url == f"{site.url}/" or "/ui/" in answer.url:
            files[answer.url] = int(answer.headers.get("content-length", 0))

    page.on("response", add)
    found = []
    for place, complete in PAGES.items():
        page.goto(f"{site.url}/{place}")
        page.wait_for_selector(complete)
        found.append(sum(files.values()))
    job = site.ask("GET", "/jobs?limit=1").json()["jobs"][0]["jobId"]
    page.goto(f"{site.url}/#/jobs/{job}")
    page.wait_for_selector(".badge")
    found.append(sum(files.values()))
    context.close()
    return found


def _tasks(browser: Any, site: Site) -> tuple[list[float], int]:
    """Milliseconds of each long task of the overview and of the list, and how many events they got."""
    jobs = site.ask("GET", "/jobs?limit=50").json()["jobs"]
    found: list[float] = []
    events = 0
    for place, complete in (("#/", ".figures a"), ("#/jobs", "tr[data-id]")):
        with flooding(site.port, jobs, EVENTS) as stub:
            context = browser.new_context(viewport={"width": 1400, "height": 900})
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{stub.port}/{place}")
            page.wait_for_selector(complete)
            page.wait_for_selector("html[data-connection=live]")
            page.wait_for_timeout(1000)  # the first reads of the page
            page.evaluate(TASKS)
            begin = stub.sent
            page.wait_for_timeout(SECONDS * 1000)
            found += page.evaluate("window.tasks")
            events += stub.sent - begin
            context.close()
    return found, events
