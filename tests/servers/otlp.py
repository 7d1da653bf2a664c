"""A receiver of OTLP/HTTP that decodes spans, and of webhooks. It can also hang."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.ports import HOST


@dataclass(frozen=True)
class Span:
    """A span of OTLP. Ids are hexadecimal; `parent` is empty for a root."""

    name: str
    trace_id: str
    id: str
    parent: str
    kind: int  # 1 internal, 2 server, 3 client, 4 producer, 5 consumer
    start: int
    end: int
    attributes: dict[str, Any] = field(hash=False)
    links: tuple[str, ...]  # ids of spans of the same trace
    error: str  # empty: no error
    state: str  # tracestate
    service: str


class OtlpReceiver:
    """Use it as a context manager. `hangs`: a request gets no response until the end."""

    def __init__(self, hangs: bool = False) -> None:
        self.spans: list[Span] = []
        self.webhooks: list[dict[str, str]] = []  # the headers of each
        self.requests = 0
        self.release = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.requests += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hangs:
                    receiver.release.wait()
                elif self.path == "/v1/traces":
                    receiver.spans += _decode(body, self.headers.get("Content-Encoding"))
                else:
                    receiver.webhooks.append({k.lower(): v for k, v in self.headers.items()})
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def of(self, trace_id: str) -> list[Span]:
        return sorted((s for s in self.spans if s.trace_id == trace_id), key=lambda s: s.start)

    def __enter__(self) -> OtlpReceiver:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


def _decode(body: bytes, encoding: str | None) -> list[Span]:
    import gzip

    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    if encoding == "gzip":
        body = gzip.decompress(body)
    request = ExportTraceServiceRequest.FromString(body)
    found = []
    for resource in request.resource_spans:
        service = {a.key: a.value.string_value for a in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                found.append(
                    Span(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.kind,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        {a.key: _value(a.value) for a in span.attributes},
                        tuple(link.span_id.hex() for link in span.links),
                        span.status.message if span.status.code == 2 else "",
                        span.trace_state,
                        service.get("service.name", ""),
                    )
                )
    return found


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
