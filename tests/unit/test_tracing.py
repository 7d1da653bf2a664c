"""The parts of traces: headers, ids, the queue of spans, and that nothing is imported without a receiver."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from bide.core.wire.traces import (
    process_span_id,
    read_trace,
    render_traceparent,
    send_span_id,
)
from bide.server.config import TraceConfig
from bide.server.job_tracer import MAX_BATCH, MAX_QUEUE, JobTracer, SpanQueue, set_caller
from tests.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("parent", "state", "expected"),
    [
        (f"00-{TRACE}-{SPAN}-01", "a=1", (TRACE, SPAN, True, "a=1")),
        (f"00-{TRACE}-{SPAN}-00", None, (TRACE, SPAN, False, "")),
        (f"00-{TRACE}-{SPAN}-03", "x" * 600, (TRACE, SPAN, True, "")),
        (f"00-{TRACE}-{SPAN}-01", "a=\r\nb", (TRACE, SPAN, True, "")),
        (f"cc-{TRACE}-{SPAN}-01-more", None, (TRACE, SPAN, True, "")),
        (f"ff-{TRACE}-{SPAN}-01", None, None),
        (f"00-{'0' * 32}-{SPAN}-01", None, None),
        (f"00-{TRACE}-{'0' * 16}-01", None, None),
        ("hello", None, None),
    ],
)
def test_the_headers_of_a_caller(parent: str, state: str | None, expected: Any) -> None:
    assert read_trace(parent, state) == expected


def test_ids_are_derived() -> None:
    ids = {
        send_span_id("01J"),
        process_span_id("01J", 1),
        process_span_id("01J", 2),
        send_span_id("01K"),
    }
    assert len(ids) == 4 and all(0 < one < 2**64 for one in ids)
    assert send_span_id("01J") == send_span_id("01J")
    assert read_trace(render_traceparent(TRACE, send_span_id("01J"))) is not None


def test_the_decision() -> None:
    low, high = "f" * 16 + "0" * 15 + "1", "0" * 16 + "f" * 16
    tracer = JobTracer(TraceConfig("http://127.0.0.1:9", 0.5))
    try:
        assert (tracer.begin(low), tracer.begin(high)) == ("", None)
        set_caller(f"00-{high}-{SPAN}-01", "a=1")
        assert (tracer.begin(high), tracer.begin(low)) == ("a=1", "")
        set_caller(f"00-{low}-{SPAN}-00", None)
        assert tracer.begin(low) is None
    finally:
        tracer.close()


def test_a_queue_whose_export_hangs_drops_spans_and_closes() -> None:
    free, began, exported = threading.Event(), threading.Event(), []

    def export(batch: Any) -> SpanExportResult:
        began.set()
        free.wait()
        exported.extend(batch)
        return SpanExportResult.SUCCESS

    queue = SpanQueue(lambda span: span, export, free.set)  # type: ignore[arg-type, return-value]
    spans: list[Any] = list(range(MAX_BATCH + MAX_QUEUE + 10))
    for span in spans[:MAX_BATCH]:
        queue.add(span)
    assert began.wait(30)
    for span in spans[MAX_BATCH:]:
        queue.add(span)
    assert queue._dropped == 10
    begin = time.monotonic()
    queue.close(0.05)  # it calls the shutdown of the exporter, which ends the export
    assert time.monotonic() - begin < 10
    until(lambda: len(exported) == MAX_BATCH + MAX_QUEUE)


def test_nothing_is_imported_without_a_receiver() -> None:
    code = (
        "import sys, bide.service.serve, bide.client.client, bide.client.account; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
