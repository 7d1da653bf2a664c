"""`bide wait --ledger` over crashes: real processes, a vendor over a socket, SIGKILL and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.acceptance.vendors import KEY, PATIENCE, Shop, start
from tests.waiting import until


def rows(path: Path, where: str) -> set[str]:
    """Ids in a ledger, read while another process writes it."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return {id for (id,) in connection.execute(f"SELECT job_id FROM jobs WHERE {where}")}
    finally:
        connection.close()


def finish(process: subprocess.Popen[str]) -> tuple[list[dict[str, Any]], str]:
    stdout, stderr = process.communicate(timeout=PATIENCE)
    return [json.loads(line) for line in stdout.splitlines()], stderr


def test_after_a_kill_all_jobs_end_and_no_reported_one_is_reported_again(tmp_path: Path) -> None:
    ledger = tmp_path / "films.ledger"
    how = ("--json", "--ledger", str(ledger), "--limit", "20/1s", "--header", "x-team: hush-hush")
    with Shop(40, "{ uniform = [0.5, 3.0] }") as shop:
        first = start(tmp_path, *shop.jobs, "--api", "sync.so", "--url", shop.url, *how)
        assert first.stdout is not None
        early = [json.loads(first.stdout.readline()) for _ in range(5)]
        first.kill()
        early += finish(first)[0]  # what had been printed by then

        ended, told = rows(ledger, "ended"), rows(ledger, "acknowledged")
        for file in tmp_path.glob("films.ledger*"):
            assert KEY.encode() not in file.read_bytes()
            assert b"hush-hush" not in file.read_bytes()

        before = len(shop.asked)
        second = start(tmp_path, *how)
        late, stderr = finish(second)
    assert second.returncode == 0
    once, again = [line["jobId"] for line in early], [line["jobId"] for line in late]
    assert {*once, *again} == set(shop.jobs)
    assert len(set(once)) == len(once) and len(set(again)) == len(again)
    assert set(once) & set(again) <= ended - told  # killed after the line and before the note of it
    assert told <= set(once) <= ended
    assert f"{len(told)} had ended before" in stderr

    since = shop.asked[before:]
    assert not ended & {id for _, id in since}  # nothing is asked about what is known
    hasty = [at for at, _ in since if at < since[0][0] + 1.0]
    assert len(hasty) <= 22
    assert len(shop.jobs) - len(ended) > 22  # so a rush would have been seen
    requests = {line["jobId"]: line["requests"] for line in late}
    asked = [id for _, id in shop.asked]
    # Counted over both processes, but for what the kill took with it.
    assert all(requests[id] <= asked.count(id) + 1 for id in requests)


def test_ctrl_c_is_130_and_the_ledger_goes_on(tmp_path: Path) -> None:
    with Shop(3, "{ fixed = 3600 }") as shop:
        films = ("--ledger", "films.ledger", "--json")
        first = start(tmp_path, *shop.jobs, "--api", "sync.so", "--url", shop.url, *films)
        until(lambda: len(shop.asked) >= 3, "every job was asked about")
        first.send_signal(signal.SIGINT)
        lines, stderr = finish(first)
        assert (first.returncode, lines) == (130, [])
        assert "resume with: bide wait --ledger films.ledger" in stderr
        assert "Traceback" not in stderr

        for task in shop.jobs.values():
            task.ends = 0.0
        second = start(tmp_path, *films)
        lines, _ = finish(second)
        assert second.returncode == 0
        assert sorted(line["jobId"] for line in lines) == sorted(shop.jobs)

        third = start(tmp_path, *films)
        said = "bide: 3 had ended before, 0 of them failed. No job is left to wait for\n"
        assert finish(third) == ([], said)
        assert third.returncode == 0


def test_what_was_known_is_shown_before_anybody_answers(tmp_path: Path) -> None:
    ledger = tmp_path / "films.ledger"
    with Shop(1, "{ fixed = 20 }") as shop:
        first = start(
            tmp_path, *shop.jobs, "--api", "sync.so", "--url", shop.url, "--ledger", str(ledger)
        )
        until(lambda: ledger.exists() and len(shop.asked) >= 1, "it was asked about")
        until(lambda: bool(rows(ledger, "progress IS NOT NULL")), "its progress is in the ledger")
        first.kill()
        finish(first)
    terminal, theirs = pty.openpty()  # the vendor is gone
    second = start(tmp_path, "--ledger", str(ledger), stderr=theirs)
    os.close(theirs)
    shown = ""
    end = time.monotonic() + PATIENCE
    while not re.search(r"\d%", shown) and time.monotonic() < end:
        shown += os.read(terminal, 4096).decode(errors="replace")
    assert re.search(r"\d%", shown), shown
    second.send_signal(signal.SIGINT)
    assert second.wait(PATIENCE) == 130
    assert second.stdout is not None
    second.stdout.close()
    os.close(terminal)


def test_a_ledger_in_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with Shop(1, "{ fixed = 60 }") as shop:
        films = (*shop.jobs, "--api", "sync.so", "--url", shop.url, "--ledger", "films.ledger")
        first = start(tmp_path, *films)
        until(lambda: bool(shop.asked), "it was asked about")
        second = start(tmp_path, *films)
        _, stderr = finish(second)
        assert second.returncode == 1
        assert f"another process ({first.pid}) uses the ledger" in stderr
        assert "use another file" in stderr
        first.kill()
        finish(first)
