"""The spans of jobs, exported with OpenTelemetry over OTLP/HTTP: send, wait, process, steps, children and webhooks.

1. Without a receiver there is no JobTracer, and nothing of OpenTelemetry is imported.
2. The submission decides whether a job is traced: as its caller has decided, else by the ratio. `Job.tracestate` has the
   decision, so that all attempts, children and webhooks of the job follow it, in all processes.
3. A span is made when it has ended, from the record of the job. Its id is derived (`core.wire.traces`), so that the spans of
   several processes fit together.
4. A thread with a bounded queue exports the spans. If the receiver hangs or is down, spans are dropped, and nothing waits
   for it: no request, no job, and a shutdown for at most CLOSE_TIMEOUT.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from bide.core.errors import ErrorInfo, SetupError
from bide.core.jobs import state_machine as changes
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Change
from bide.core.wire.traces import (
    TraceParent,
    derived_span_id,
    process_span_id,
    read_trace,
    render_traceparent,
    send_span_id,
)
from bide.server.config import TraceConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

log = logging.getLogger("bide.tracing")
MAX_QUEUE = 4096  # spans that wait for the export
MAX_BATCH = 512
EVERY = 2.0  # seconds between two exports
CLOSE_TIMEOUT = 2.0  # seconds in which the last spans are exported at a shutdown
LOG_EVERY = 60.0  # seconds between two lines about dropped spans
OUTCOMES: dict[type[Change], str] = {
    changes.Succeeded: "succeeded",
    changes.FailedForNow: "retried",
    changes.Delayed: "delayed",
    changes.Failed: "failed",
    changes.Parked: "parked",
    changes.Lost: "lost",
    changes.HandedBack: "returned",
}
_caller: ContextVar[TraceParent | None] = ContextVar("bide.caller", default=None)


def set_caller(traceparent: str, tracestate: str | None) -> None:
    """Remember the span of the caller whose request runs in this context. It need not be reset: a later request of the same
    connection has another trace id, unless it has the header, too.
    """
    _caller.set(read_trace(traceparent, tracestate))


class WebhookTrace(NamedTuple):
    """The span of an attempt to deliver a webhook, before it is sent."""

    trace_id: str
    span_id: int
    state: str
    fence: int  # of the attempt that the event is about; 0: none
    number: int  # of the attempt to deliver

    @property
    def headers(self) -> dict[str, str]:
        found = {"traceparent": render_traceparent(self.trace_id, self.span_id)}
        return {**found, "tracestate": self.state} if self.state else found


class JobTracer:
    """Decides which jobs are traced, and exports their spans. Instants are those of the store. The event loop uses it."""

    def __init__(self, config: TraceConfig) -> None:
        """Raises SetupError if OpenTelemetry is not installed."""
        assert config.endpoint is not None
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        except ModuleNotFoundError as error:
            raise SetupError.not_installed(f"{error.name} is not installed", "otel") from None
        # The exporter logs each failed export, which the queue reports once per minute.
        logging.getLogger("opentelemetry.exporter.otlp.proto.http").setLevel(logging.CRITICAL)
        # Compared with the second half of a trace id, as OpenTelemetry's samplers do.
        self._bound = "g" if config.sample >= 1 else f"{int(config.sample * 2**64):016x}"
        address = config.endpoint.rstrip("/") + "/v1/traces"
        exporter = OTLPSpanExporter(endpoint=address, timeout=config.timeout)
        resource = Resource.create()  # from OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "bide"}))
        self._queue = SpanQueue(_encoder(resource), exporter.export, exporter.shutdown)

    def close(self) -> None:
        """Export the last spans, for at most CLOSE_TIMEOUT seconds. It blocks: call it in a thread."""
        self._queue.close(CLOSE_TIMEOUT)

    # --- the decision

    def begin(self, trace_id: str) -> str | None:
        """The `tracestate` of a new job; None if it is not traced."""
        caller = _caller.get()
        if caller is not None and caller.trace_id == trace_id:
            return caller.state if caller.sampled else None
        return "" if trace_id[16:] < self._bound else None

    # --- the spans

    def submitted(self, job: Job, ended: float, parent_fence: int | None = None) -> None:
        """Export the submission of a traced job. `parent_fence`: of the attempt that spawned it."""
        if job.tracestate is None:
            return
        caller, parent_id = _caller.get(), None
        if job.parent is not None and parent_fence is not None:
            parent_id = process_span_id(job.parent, parent_fence)
        elif caller is not None and caller.trace_id == job.trace_id:
            parent_id = int(caller.span_id, 16)
        self._queue.add(
            EndedSpan(
                _trace_of(job),
                f"send {job.queue}",
                "PRODUCER",
                {**_of_job(job), **_operation("send")},
                job.created_at,
                ended,
                send_span_id(job.id),
                parent_id,
            )
        )

    def attempted(
        self, job: Job, started: float, due: float | None, ended: float, change: Change
    ) -> None:
        """Export an attempt with its wait and its steps. `job` is the record while it ran, `change` its end, and `due` when
        it could have started; None: unknown.
        """
        if job.tracestate is None:
            return
        sent, own = send_span_id(job.id), process_span_id(job.id, job.fence)
        error = _error_of(change)
        trace, of_job, add = _trace_of(job), _of_job(job), self._queue.add
        if due is not None:
            waited = due, max(due, started)
            add(EndedSpan(trace, f"wait {job.queue}", "INTERNAL", of_job, *waited, None, sent))
        attributes = {
            **of_job,
            **_operation("process"),
            "bide.attempt": job.attempt,
            "bide.outcome": OUTCOMES.get(type(change), "ended"),
        }
        # It begins after its parent has ended, and follows the attempt before it.
        links = [sent] if job.fence < 2 else [sent, process_span_id(job.id, job.fence - 1)]
        add(
            EndedSpan(
                trace,
                f"process {job.queue}",
                "CONSUMER",
                attributes,
                started,
                ended,
                own,
                sent,
                links,
                error,
            )
        )
        for step in job.steps:
            if step.started_at is not None and step.started_at >= started:  # not of an earlier attempt
                failed = None if step.status is Status.DONE else error
                add(
                    EndedSpan(
                        trace,
                        f"step {step.name}",
                        "INTERNAL",
                        {**of_job, "bide.step": step.name},
                        step.started_at,
                        step.finished_at or ended,
                        None,
                        own,
                        (),
                        failed,
                    )
                )

    def webhook(self, trace: tuple[str, str, int], name: str, number: int) -> WebhookTrace | None:
        """The span of a delivery. `trace`: traceparent and tracestate of its job, and its fence."""
        found = read_trace(trace[0], trace[1])
        if found is None:
            return None
        return WebhookTrace(
            found.trace_id, derived_span_id(f"{name}/{number}"), found.state, trace[2], number
        )

    def delivered(
        self,
        trace: WebhookTrace,
        job_id: str,
        message_id: str,
        url: str,
        status: int | None,
        error: str | None,
        times: tuple[float, float],
    ) -> None:
        """Export an attempt to deliver a webhook."""
        parts = urlsplit(url)
        attributes: dict[str, Any] = {
            "messaging.system": "bide",
            "messaging.message.id": job_id,
            "bide.webhook.id": message_id,
            "http.request.method": "POST",
            "http.request.resend_count": trace.number - 1,
            "server.address": parts.hostname or "",
            # Without credentials and query, which may be secret.
            "url.full": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
        }
        if status is not None:
            attributes["http.response.status_code"] = status
        failed = None
        if error is not None or not 200 <= (status or 0) < 300:
            code = "no-response" if status is None else str(status)
            failed = ErrorInfo(code, error or f"the endpoint answered {status}")
        links = [process_span_id(job_id, trace.fence)] if trace.fence else []
        self._queue.add(
            EndedSpan(
                (trace.trace_id, trace.state),
                "webhook",
                "CLIENT",
                attributes,
                *times,
                trace.span_id,
                send_span_id(job_id),
                links,
                failed,
            )
        )


class EndedSpan(NamedTuple):
    """A span before it is encoded, which the exporting thread does."""

    trace: tuple[str, str]  # the trace id and the tracestate
    name: str
    kind: str  # of SpanKind
    attributes: Mapping[str, Any]
    began: float
    ended: float
    id: int | None  # None: any
    parent_id: int | None
    links: Sequence[int] = ()
    error: ErrorInfo | None = None


def _trace_of(job: Job) -> tuple[str, str]:
    return job.trace_id or "0", job.tracestate or ""


def _of_job(job: Job) -> dict[str, Any]:
    return {
        "messaging.system": "bide",
        "messaging.destination.name": job.queue,
        "messaging.message.id": job.id,
        "bide.kind": job.kind,
        "bide.tenant": job.tenant,
    }


def _operation(name: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": name}


def _error_of(change: Change) -> ErrorInfo | None:
    if isinstance(change, changes.Lost):
        return ErrorInfo("WORKER_LOST", "the worker vanished during the attempt")
    if isinstance(change, changes.Failed | changes.FailedForNow):
        return change.error
    return None


def _encoder(resource: Resource) -> Callable[[EndedSpan], ReadableSpan]:
    """Makes a span of OpenTelemetry."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import (
        Link,
        SpanContext,
        SpanKind,
        StatusCode,
        TraceFlags,
        TraceState,
    )
    from opentelemetry.trace import Status as SpanStatus

    scope, unset = InstrumentationScope("bide"), SpanStatus(StatusCode.UNSET)
    sampled, no_state, random_id = (
        TraceFlags(TraceFlags.SAMPLED),
        TraceState(),
        RandomIdGenerator().generate_span_id,
    )

    def encode(span: EndedSpan) -> ReadableSpan:
        trace_id, state = int(span.trace[0], 16), span.trace[1]
        members = TraceState.from_header([state]) if state else no_state

        def context(span_id: int, *, remote: bool) -> SpanContext:
            return SpanContext(trace_id, span_id, remote, sampled, members)

        attributes, status = span.attributes, unset
        if span.error is not None:
            attributes = {**attributes, "error.type": span.error.code}
            status = SpanStatus(StatusCode.ERROR, span.error.message)
        return ReadableSpan(
            span.name,
            context(random_id() if span.id is None else span.id, remote=False),
            None if span.parent_id is None else context(span.parent_id, remote=True),
            resource,
            attributes,
            (),
            [Link(context(link, remote=True)) for link in span.links],
            SpanKind[span.kind],
            None,
            status,
            int(span.began * 1e9),
            int(max(span.began, span.ended) * 1e9),
            scope,
        )

    return encode


class SpanQueue:
    """Exports spans in batches, in a thread. If they arrive faster than they are exported, it drops the newest."""

    def __init__(
        self,
        encode: Callable[[EndedSpan], ReadableSpan],
        export: Callable[[Sequence[ReadableSpan]], Any],
        shut_down: Callable[[], object],
    ) -> None:
        self._encode = encode
        self._export = export
        self._shut_down = shut_down
        self._spans: deque[EndedSpan] = deque()
        self._wake_up = threading.Event()
        self._closing = False
        self._dropped = 0
        self._log_at = 0.0
        self._thread = threading.Thread(target=self._run, name="bide-tracing", daemon=True)
        self._thread.start()

    def add(self, span: EndedSpan) -> None:
        if self._closing or len(self._spans) >= MAX_QUEUE:
            self._dropped += 1
            return
        self._spans.append(span)
        if len(self._spans) == MAX_BATCH:
            self._wake_up.set()

    def _run(self) -> None:
        while not self._closing:
            self._wake_up.wait(EVERY)
            self._wake_up.clear()
            self._flush()
        self._flush()

    def _flush(self) -> None:
        while self._spans:
            batch = [self._spans.popleft() for _ in range(min(MAX_BATCH, len(self._spans)))]
            try:
                exported = self._export([self._encode(span) for span in batch]).name == "SUCCESS"
            except Exception:
                exported = False
            self._dropped += 0 if exported else len(batch)
        now = time.monotonic()
        if self._dropped and now >= self._log_at:
            dropped, self._dropped, self._log_at = self._dropped, 0, now + LOG_EVERY
            log.warning("%d spans were dropped: the receiver of traces does not accept them", dropped)

    def close(self, timeout: float) -> None:
        self._closing = True
        self._wake_up.set()
        self._thread.join(timeout)
        self._shut_down()  # ends the retries of an export
