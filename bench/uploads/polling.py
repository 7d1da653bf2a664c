"""A client that requests a job's status at a steady pace, and the 99th percentile of the response times."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable

PACE = 0.005  # seconds between two requests


def p99(port: int, job_id: str, until: float | Callable[[], bool]) -> float:
    """Response times in seconds: of this many requests, or while the condition is true."""
    end = time.monotonic() + until if isinstance(until, float) else None
    going: Callable[[], bool] = until if callable(until) else lambda: time.monotonic() < (end or 0.0)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    took = []
    while going():
        begin = time.perf_counter()
        connection.request("GET", f"/jobs/{job_id}")
        connection.getresponse().read()
        took.append(time.perf_counter() - begin)
        time.sleep(PACE)
    return sorted(took)[int(len(took) * 0.99)]
