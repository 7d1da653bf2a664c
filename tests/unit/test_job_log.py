"""The limits of a job's log."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bide.server.worker import job_log
from bide.server.worker.job_log import BURST, MAX_RECORDS, RATE, JobLog, Line
from bide.testing.clock import ManualClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(job_log, "monotonic", clock.now)
    return clock


class Sent:
    """Where a log sends its lines; `busy`: another message is being sent."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.busy = False

    def try_send(self, line: Line) -> bool:
        if not self.busy:
            self.lines.append(line)
        return not self.busy


def test_an_attempt_logs_at_most_its_maximum(clock: ManualClock) -> None:
    sent = Sent()
    log = JobLog(sent.try_send)
    for number in range(MAX_RECORDS + 50):
        log.add({"message": str(number)})
        clock.advance(1.0)
    texts = [line["message"] for line in sent.lines]
    assert texts[:MAX_RECORDS] == [str(number) for number in range(MAX_RECORDS)]
    reason = "the attempt has logged 10000 records, the maximum"
    assert texts[MAX_RECORDS:] == [f"{reason}: records are dropped"]
    assert [line["message"] for line in log.finish()] == [f"50 records were dropped: {reason}"]


def test_after_a_burst_the_rate_counts(clock: ManualClock) -> None:
    sent = Sent()
    log = JobLog(sent.try_send)
    for _ in range(BURST + 7):
        log.add({"message": "burst"})
    clock.advance(0.5)
    for _ in range(RATE):
        log.add({"message": "later"})
    kept = [line["message"] for line in sent.lines]
    assert (kept.count("burst"), kept.count("later")) == (BURST, RATE // 2)
    (note,) = log.finish()
    assert note["message"].startswith(f"{7 + RATE // 2} records were dropped")


def test_dropped_records_are_counted_by_reason(clock: ManualClock) -> None:
    log = JobLog(Sent().try_send)
    for _ in range(BURST + 7):
        log.add({"message": "burst"})
    for _ in range(MAX_RECORDS - BURST + 3):
        clock.advance(1.0)
        log.add({"message": "later"})
    assert [line["message"] for line in log.finish()] == [
        "7 records were dropped: the attempt logs more than 100 records per second",
        "3 records were dropped: the attempt has logged 10000 records, the maximum",
    ]


def test_a_line_that_is_added_while_the_sender_stops_is_sent(clock: ManualClock) -> None:
    """Another thread adds it after the sender has looked for more lines, and before it releases the lock."""
    sent = Sent()
    log = JobLog(sent.try_send)
    lock, late = log._sending, [{"message": "two"}]

    class Sending:
        acquire = staticmethod(lock.acquire)

        def release(self) -> None:
            if late:
                log.add(late.pop())
            lock.release()

    log._sending = cast(Any, Sending())
    log.add({"message": "one"})
    assert [line["message"] for line in sent.lines] == ["one", "two"]


def test_lines_wait_while_another_message_is_sent(clock: ManualClock) -> None:
    sent = Sent()
    log = JobLog(sent.try_send)
    sent.busy = True
    log.add({"message": "one"})
    sent.busy = False
    log.add({"message": "two"})
    sent.busy = True
    log.add({"message": "three"})
    assert [line["message"] for line in sent.lines] == ["one", "two"]
    assert log.finish() == [{"message": "three"}]
