"""The spans of a client: one per request, submissions and polls, with OpenTelemetry.

1. Without the option `tracer` nothing of OpenTelemetry is imported.
2. A submission is a child of the span in which the program submits. A poll of one job is a child of the span in which the
   program submitted the job or began to wait for it; a poll of several jobs is linked to these spans.
3. Only a bide service gets `traceparent` and `tracestate`, so no other API learns the ids of traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer


# The contexts in which the jobs of a poll were submitted.
_polled: ContextVar[Sequence[Any]] = ContextVar("bide.polled", default=())


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

    def polling(self, contexts: Sequence[Any]) -> None:
        """Set the contexts of the jobs that the next request of this task polls."""
        _polled.set([context for context in contexts if context is not None])

    def request(self, method: str, url: str, *, submission: bool, poll: bool) -> RequestSpan:
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
        if poll:
            contexts = _polled.get()
            context = contexts[0] if len(contexts) == 1 else Context()
            if len(contexts) > 1:
                links = [Link(get_current_span(one).get_span_context()) for one in contexts]
        name = f"send {self._api}" if submission else f"poll {self._api}" if poll else method
        kind = SpanKind.PRODUCER if submission else SpanKind.CLIENT
        if submission:
            attributes |= {"messaging.system": "bide", "messaging.operation.type": "send"}
        return RequestSpan(self._tracer.start_span(name, context, kind, attributes, links))
