"""The spans of a client: one per request, submissions and polls, with OpenTelemetry.

1. Without the option `tracer` nothing of OpenTelemetry is imported.
2. A submission is a child of the span in which the program submits. A poll of one job is a child of the span in which the
   program submitted the job or began to wait for it; a poll of several jobs is linked to these spans.
3. Only a bide service gets `traceparent` and `tracestate`, so no other API learns the ids of traces.
4. The tracer belongs to the process of the program. Child processes report their requests, and `record` makes the spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer


# The contexts in which the jobs of a poll were submitted; in a child process, their carriers.
polled: ContextVar[Sequence[Any]] = ContextVar("bide.polled", default=())
Carrier = tuple[str, str]  # `traceparent` and `tracestate`


class OpenRequest(Protocol):
    """A request that is being sent. It is a context manager."""

    @property
    def headers(self) -> dict[str, str]: ...

    def answered(self, status: int) -> None: ...

    def __enter__(self) -> OpenRequest: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: Any
    ) -> None: ...


class RequestTracer(Protocol):
    def request(self, method: str, url: str, *, submission: bool, poll: bool) -> OpenRequest: ...


def set_polled(contexts: Sequence[Any]) -> None:
    """Set the contexts of the jobs that the next request of this task polls."""
    polled.set([context for context in contexts if context is not None])


def carrier_of(context: Any) -> Carrier | None:
    """The ids of the span of a context; None if it has none."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(found, context)
    return (found["traceparent"], found.get("tracestate", "")) if found else None


class RequestSpan:
    """The span of one request. Use it as a context manager."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def headers(self) -> dict[str, str]:
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        found: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(found, set_span_in_context(self._span))
        return found

    def answered(self, status: int) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("http.response.status_code", status)
        if status >= 400:
            self._span.set_attribute("error.type", str(status))
            self._span.set_status(StatusCode.ERROR)

    def __enter__(self) -> RequestSpan:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        from opentelemetry.trace import StatusCode

        if kind is not None:
            self._span.set_attribute("error.type", kind.__name__)
            self._span.set_status(StatusCode.ERROR, str(error))
        self._span.end()


class ClientTracer:
    """Makes the spans of one account. `tracer` is that of the program."""

    def __init__(self, tracer: Tracer, api: str) -> None:
        self._tracer = tracer
        self._api = api

    def current(self) -> Context:
        """The context of the caller, in which a job is submitted or awaited."""
        from opentelemetry.context import get_current

        return get_current()

    def request(self, method: str, url: str, *, submission: bool, poll: bool) -> RequestSpan:
        contexts = polled.get() if poll else None
        return RequestSpan(self._begin(method, url, contexts, submission=submission))

    def record(
        self,
        method: str,
        url: str,
        callers: Sequence[Carrier] | None,
        times: tuple[int, int],
        status: int | None,
        error: str | None,
    ) -> None:
        """Make the span of a request that a child process has sent. `callers`: those of the jobs of a poll; None: it is no
        poll. `times` are its begin and its end in nanoseconds.
        """
        from opentelemetry.context import Context
        from opentelemetry.trace import StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        read = TraceContextTextMapPropagator().extract
        contexts = None
        if callers is not None:
            carriers = [{"traceparent": parent, "tracestate": state} for parent, state in callers]
            contexts = [read(carrier, Context()) for carrier in carriers]
        span = self._begin(method, url, contexts, begin=times[0])
        if status is not None:
            RequestSpan(span).answered(status)
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR)
        span.end(times[1])

    def _begin(
        self,
        method: str,
        url: str,
        polled: Sequence[Any] | None,
        *,
        submission: bool = False,
        begin: int | None = None,
    ) -> Span:
        """Begin a span. `polled`: the contexts of the jobs of a poll; None: the request is no poll."""
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, SpanKind, get_current_span

        parts = urlsplit(url)
        attributes = {
            "bide.api": self._api,
            "http.request.method": method,
            "server.address": parts.hostname or "",
            # Without credentials and query, which may be secret.
            "url.full": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
        }
        context, links = None, []
        if polled is not None:
            context = polled[0] if len(polled) == 1 else Context()
            if len(polled) > 1:
                links = [Link(get_current_span(one).get_span_context()) for one in polled]
        poll = polled is not None
        name = f"send {self._api}" if submission else f"poll {self._api}" if poll else method
        kind = SpanKind.PRODUCER if submission else SpanKind.CLIENT
        if submission:
            attributes |= {"messaging.system": "bide", "messaging.operation.type": "send"}
        return self._tracer.start_span(name, context, kind, attributes, links, begin)
