"""The queries of the benchmark. `python -m bench.look.queries PORT RATE` sends RATE of them per second until it is stopped;
with a RATE of 0 one after the other, so that a query runs at every moment.
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Sequence
from urllib.parse import quote

RATE = 10  # per second: ten open dashboards send about as many
SINGLE = (
    "",
    "kind=transcode",
    "kind=report",
    "queue=default",
    "queue=batch",
    "status=DONE",
    "status=ERROR",
    "status=PROCESSING",
    "status=ERROR&status=CANCELLED",
    "code=OCR_TIMEOUT",
    "label=team:ops",
    "label=customer:c77",
    "q=step:probe",
    "q=input.video.id:v77",
    "q=ops",
    "q=01",
)
PAIRS = (
    "q=kind:transcode status:ERROR",
    "q=kind:mail queue:default",
    "q=kind:ocr error:TIMEOUT",
    "q=kind:noop label.team:ops",
    "q=kind:transcode step:probe",
    "q=status:ERROR error:TIMEOUT",
    "q=status:ERROR label.team:dev",
    "q=status:DONE label.customer:c77",
    "q=error:TIMEOUT label.team:ops",
    "q=label.team:ops label.env:dev",
    "q=label.team:ops step:probe",
    "q=label.env:prod label.customer:c99",
    "q=input.video.id:v77 label.env:prod",
    "q=input.video.id:v78 status:DONE",
    "q=queue:video label.env:dev",
    "q=ops prod",
)
EMPTY = (
    "q=kind:noop queue:video",
    "q=kind:noop step:probe",
    "q=kind:mail error:VALUE_ERROR",
    "q=status:PENDING kind:noop",
    "q=status:DONE error:TIMEOUT",
    "q=status:PROCESSING label.team:ops",
    "q=label.team:night label.env:dev",
    "q=label.team:night step:probe",
    "q=label.team:night queue:video",
    "q=input.video.id:v77 label.team:night",
    "q=error:VALUE_ERROR label.customer:none",
    "q=error:NONE",
    "q=kind:none",
    "q=nothing",
)
ORDERS = (
    "order=oldest",
    "order=longest",
    "order=longest&kind=transcode",
    "order=longest&status=ERROR",
    "order=longest&label=team:ops",
    "order=longest&label=customer:c77",
    "order=longest&code=TIMEOUT",
    "order=oldest&label=team:ops",
)
COUNTS = (
    "",
    "status=ERROR",
    "kind=transcode",
    "label=team:ops",
    "q=label.team:night label.env:dev",
    "code=TIMEOUT",
)
LARGE = {  # refused
    "1,000 terms": "kind:x " * 1000,
    "1 MB": "x" * 1_000_000,
    "a path of 1,000 parts": "input" + ".a" * 1000 + ":1",
}
STATS = ("", "kind=transcode", "queue=default", "step=600", "step=3600")


def path(query: str) -> str:
    name, _, rest = query.partition("q=")
    return f"/jobs?{name}q={quote(rest)}" if rest else f"/jobs?{query}"


class Sender:
    """Sends requests on one connection, and measures them."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, target: str) -> tuple[float, bytes]:
        """Seconds and body. A response that is no success has infinite seconds."""
        begin = time.perf_counter()
        self._connection.request("GET", target)
        answer = self._connection.getresponse()
        body = answer.read()
        seconds = time.perf_counter() - begin
        if answer.status != 200:
            print(f"{target}: {answer.status} {body[:300]!r}", flush=True)
            return float("inf"), body
        return seconds, body


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


if __name__ == "__main__":
    sender, rate, pace = Sender(int(sys.argv[1])), int(sys.argv[2]), time.monotonic()
    targets = [path(text) for text in (*SINGLE, *PAIRS, *EMPTY)] + [f"/stats?{text}" for text in STATS]
    while True:
        for target in targets:
            sender.get(target)
            if rate:
                pace = max(pace + 1 / rate, time.monotonic())
                time.sleep(max(0.0, pace - time.monotonic()))
