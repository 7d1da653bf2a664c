"""Takes the pictures of the dashboard in docs/pictures from a running demo: `python -m tests.docs.screenshots`.

The demo runs for several minutes before the pictures are taken, so that the plots have something to show.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bide import Client
from tests.waiting import until

TARGET = Path(__file__).parents[2] / "docs" / "pictures"
WARM_UP = 420.0  # seconds
ADDRESS = re.compile(r"The dashboard is at (http://\S+)/\.")
DESKTOP = {"width": 1280, "height": 1000}
PHONE = {"width": 390, "height": 844}
FLAGS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


class Camera:
    """Opens pages and stores pictures of them."""

    def __init__(self, browser: Any, url: str) -> None:
        self._browser = browser
        self._url = url

    def take(
        self, name: str, place: str, complete: str, *, theme: str, size: dict[str, int], select: int = 0
    ) -> None:
        phone = size is PHONE
        context = self._browser.new_context(
            viewport=size,
            color_scheme=theme,
            timezone_id="Europe/Berlin",
            reduced_motion="reduce",
            is_mobile=phone,
            device_scale_factor=2 if phone else 1,
        )
        page = context.new_page()
        page.goto(f"{self._url}/{place}")
        page.wait_for_selector("html[data-connection=live]")
        page.wait_for_selector(complete)
        for number in range(select):
            page.locator("tbody input[type=checkbox]").nth(number).check()
        if select:
            page.click("text=Select all that match")
            page.wait_for_selector(".bulk >> text=that match")
        page.wait_for_timeout(1500)  # for what arrives after the first paint
        TARGET.mkdir(exist_ok=True)
        page.screenshot(path=TARGET / f"{name}.png")
        context.close()


def running(client: Client, kind: str) -> str:
    """The id of a job of this kind that has run for a while."""

    def found() -> str | None:
        jobs = client.list(status="PROCESSING", kind=kind)
        done = [job for job in jobs if job.progress and 30 < (job.progress.percent or 0) < 70]
        return done[0].job_id if done else None

    return str(until(found, timeout=300))


def take_all(url: str) -> None:
    from playwright.sync_api import sync_playwright

    with Client(url) as client, sync_playwright() as play:
        chromium = shutil.which("chromium")
        browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        camera = Camera(browser, url)
        failed = client.list(status="ERROR", kind="ocr", code="OCR_TIMEOUT", label=("team", "legal"))[0]
        camera.take("dashboard-overview", "#/", ".codes li", theme="light", size=DESKTOP)
        camera.take(
            "dashboard-jobs", "#/jobs?status=ERROR", "tbody tr", theme="light", size=DESKTOP, select=2
        )
        place = f"#/jobs/{failed.job_id}"
        camera.take("dashboard-job", place, ".waterfall .span", theme="light", size=DESKTOP)
        place = f"#/jobs/{running(client, 'transcribe')}"
        camera.take("dashboard-running", place, ".output p", theme="dark", size=DESKTOP)
        camera.take("dashboard-phone", "#/", ".codes li", theme="light", size=PHONE)
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "demo.log"
        command = [sys.executable, "-m", "bide", "demo", "--keep", "--out", str(Path(folder) / "out")]
        with log.open("w") as out:
            demo = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            found = until(lambda: ADDRESS.search(log.read_text()), timeout=300)
            print(f"The demo runs at {found[1]}; the pictures follow in {WARM_UP:.0f} s.", flush=True)
            time.sleep(WARM_UP)
            take_all(found[1])
        finally:
            demo.send_signal(signal.SIGTERM)
            demo.wait()
    print(f"The pictures are in {TARGET}.")


if __name__ == "__main__":
    main()
