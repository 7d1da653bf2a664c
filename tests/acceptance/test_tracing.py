"""The spans of jobs as a receiver of OTLP gets them, from a running service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.client.client import AsyncClient
from bide.core.wire.traces import render_traceparent
from tests.servers.otlp import OtlpReceiver, Span
from tests.servers.service import ServiceProcess
from tests.waiting import until

APP = "tests.apps.traced:app"
TRACE = "4bf92f3577b34da6a3ce929d0e0e47"  # and two digits
CALLER = "00f067aa0ba902b7"
WAIT = {"Prefer": "wait=30"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as found:
        yield found


@pytest.fixture(scope="module")
def service(
    receiver: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    options = ["--otlp", receiver.url, "--trace-sample", "0", "--webhooks-allow-private"]
    found = ServiceProcess(tmp_path_factory.mktemp("traced"), APP, workers=2, options=options)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def caller(number: str, flags: str = "01") -> dict[str, str]:
    return {
        "traceparent": f"00-{TRACE}{number}-{CALLER}-{flags}",
        "tracestate": "vendor=one,other=two",
        **WAIT,
    }


def test_one_trace_has_submission_retry_steps_child_and_webhook(
    service: ServiceProcess, receiver: OtlpReceiver
) -> None:
    hook = {"url": f"{receiver.url}/hook", "events": ["terminal"]}
    job = service.ask("POST", "/jobs", {"kind": "album", "webhook": hook}, caller("01"))
    assert job["status"] == "DONE", job
    names = until(lambda: (s := receiver.of(f"{TRACE}01")) and _complete(s) and s)
    spans = {span.id: span for span in names}
    assert len(spans) == len(names)

    def one(name: str, job_id: str = job["jobId"]) -> list[Span]:
        found = [s for s in names if s.name == name and s.attributes["messaging.message.id"] == job_id]
        return sorted(found, key=lambda s: s.start)

    # The submission, below the caller's span.
    (send,) = one("send docs")
    assert (send.parent, send.kind) == (CALLER, 4)
    assert send.attributes["messaging.operation.type"] == "send"
    assert send.attributes["messaging.destination.name"] == "docs"
    assert send.attributes["bide.kind"] == "album"
    # Three times a worker ran it: it failed, it parked, and it continued after its child. Each waited before.
    runs = one("process docs")
    assert [run.attributes["bide.outcome"] for run in runs] == ["retried", "parked", "succeeded"]
    assert [run.attributes["bide.attempt"] for run in runs] == [1, 2, 2]
    assert {(run.parent, run.kind) for run in runs} == {(send.id, 5)}
    assert [run.links for run in runs] == [
        (send.id,),
        (send.id, runs[0].id),
        (send.id, runs[1].id),
    ]
    assert [run.error for run in runs] == ["the document has no text", "", ""]
    assert runs[0].attributes["error.type"] == "NO_TEXT"
    assert [wait.parent for wait in one("wait docs")] == [send.id] * 3
    # The steps, below the attempt that ran them: the result of `fetch` is kept.
    (fetch,), (read,) = one("step fetch"), one("step read")
    assert fetch.parent == read.parent == runs[0].id
    assert (fetch.error, read.error) == ("", "the document has no text")
    # The child, below the attempt that spawned it.
    (child,) = [s for s in names if s.name == "send pages"]
    assert child.parent == runs[1].id
    (ran,) = one("process pages", child.attributes["messaging.message.id"])
    assert (ran.parent, ran.links) == (child.id, (child.id,))
    # The webhook, below the submission, linked to the last attempt.
    (hooked,) = one("webhook")
    assert (hooked.parent, hooked.links, hooked.kind) == (send.id, (runs[2].id,), 3)
    assert hooked.attributes["http.response.status_code"] == 200
    # Nothing else, and each span has the caller's state and a sensible time.
    assert len(names) == 1 + 3 + 3 + 2 + 3 + 1
    for span in names:
        assert span.state == "vendor=one,other=two" and span.service == "bide"
        assert 0 <= span.end - span.start < 60e9
        assert span.parent == CALLER or span.parent in spans
    # What the handlers and the endpoint of the webhook get continues the same trace.
    (headers,) = [h for h in receiver.webhooks if TRACE + "01" in h.get("traceparent", "")]
    assert headers["traceparent"] == render_traceparent(f"{TRACE}01", int(hooked.id, 16))
    assert headers["tracestate"] == "vendor=one,other=two"
    own = {"traceparent": f"00-{TRACE}01-{runs[2].id}-01", "tracestate": "vendor=one,other=two"}
    assert job["result"]["headers"] == own
    assert job["result"]["traceId"] == job["traceId"] == f"{TRACE}01"
    assert job["result"]["page"]["traceparent"] == f"00-{TRACE}01-{ran.id}-01"


def _complete(spans: list[Span]) -> bool:
    names = [span.name for span in spans]
    return names.count("process docs") == 3 and "webhook" in names and "process pages" in names


def test_the_caller_decides_and_else_the_ratio(service: ServiceProcess, receiver: OtlpReceiver) -> None:
    """The ratio of the service is 0."""
    body = {"kind": "album", "input": {"fails": False}}
    unsampled = service.ask("POST", "/jobs", body, caller("02", "00"))
    alone = service.ask("POST", "/jobs", body, WAIT)
    assert unsampled["result"]["headers"] == alone["result"]["headers"] == {}
    service.ask("POST", "/jobs", body, caller("03"))
    until(lambda: len(receiver.of(f"{TRACE}03")) >= 5)
    assert not receiver.of(f"{TRACE}02") and not receiver.of(alone["traceId"])


def test_an_attempt_whose_process_died_is_in_the_trace(
    service: ServiceProcess, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    body = {"kind": "dies", "input": {"marker": str(tmp_path / "marker")}}
    assert service.ask("POST", "/jobs", body, caller("04"))["result"] == "alive"

    def runs() -> list[Span] | None:
        found = [s for s in receiver.of(f"{TRACE}04") if s.name == "process docs"]
        return found if len(found) == 2 else None

    first, second = until(runs)
    assert (first.attributes["bide.outcome"], first.attributes["error.type"]) == ("lost", "WORKER_LOST")
    assert second.attributes["bide.outcome"] == "succeeded" and first.id in second.links


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_spans_of_a_client_and_of_its_job_are_one_trace(
    service: ServiceProcess, receiver: OtlpReceiver, processes: int
) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
    tracer = provider.get_tracer("program")
    async with AsyncClient(service.url, tracer=tracer, processes=processes) as client:
        with tracer.start_as_current_span("program") as program:
            job = await client.submit("album", {"fails": False})
            await job.result(timeout=30)
    provider.shutdown()
    trace_id = f"{program.get_span_context().trace_id:032x}"
    spans = until(lambda: (s := receiver.of(trace_id)) and "process docs" in {x.name for x in s} and s)
    own = {span.name: span for span in spans if span.name != "wait docs"}
    assert own["send bide"].parent == own["program"].id and own["send bide"].kind == 4
    assert own["send bide"].attributes["http.response.status_code"] == 202
    assert own["send docs"].parent == own["send bide"].id
    polls = [span for span in spans if span.name == "poll bide"]
    assert polls and {span.parent for span in polls} == {own["program"].id}
    assert polls[0].attributes["url.full"] == f"{service.url}/jobs/{job.id}"


def test_a_receiver_that_hangs_delays_nothing(tmp_path: Path) -> None:
    with OtlpReceiver(hangs=True) as hanging:
        service = ServiceProcess(tmp_path, APP, workers=1, options=["--otlp", hanging.url])
        service.start()
        try:
            body = {"kind": "page", "input": {"number": 1}}
            assert service.ask("POST", "/jobs", body, WAIT)["status"] == "DONE"
            until(lambda: hanging.requests)
            # The export hangs, and thousands of spans wait. Jobs run as before.
            batch = {"jobs": [body] * 1000}
            for _ in range(2):
                assert len(service.ask("POST", "/jobs/batch", batch)["jobs"]) == 1000
            begin = time.monotonic()
            job = service.ask("POST", "/jobs", {**body, "priority": 9}, WAIT)
            assert job["status"] == "DONE" and job["result"]["traceparent"]
            assert time.monotonic() - begin < 10
            begin = time.monotonic()
        finally:
            service.stop()  # fails after 30 seconds
        assert time.monotonic() - begin < 25
