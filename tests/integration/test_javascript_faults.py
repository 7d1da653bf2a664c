"""bide.js with a server that cuts, repeats, resets and refuses: each connection follows a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.node import run_node
from tests.waiting import until

Send = Callable[[bytes], None]
JOB = "01JGGVSAXDATN8JR1X75S1AMX1"
READ = f"""
const client = new Client(base, {{ token: "secret" }});
const interrupts = [];
const read = async (options = {{}}) => {{
  const seen = [];
  const onInterrupt = (error, pause) => interrupts.push([error.name, pause]);
  for await (const {{ type, id, job, snapshot }} of client.job("{JOB}").events({{ onInterrupt, ...options }})) {{
    seen.push([type, id ?? null, snapshot?.status ?? job?.status ?? null]);
  }}
  return seen;
}};
"""


class Script:
    """The behaviour of each connection, in order, and the requests."""

    def __init__(self) -> None:
        self.connections: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.requests: list[dict[str, str]] = []
        self.closed = threading.Event()
        self.url = ""

    def stream(self, *pieces: bytes, hold: bool = False) -> None:
        """Sends the pieces, each with a write of its own, and closes; or holds the connection until the client closes it."""

        def run(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.end_headers()
            for piece in pieces:
                handler.wfile.write(piece)
                handler.wfile.flush()
            if hold:
                handler.connection.recv(1)  # nothing, when the client has closed it
                self.closed.set()

        self.connections.append(run)

    def answer(self, status: int, body: bytes = b"", missing: int = 0, **headers: str) -> None:
        """`missing`: bytes that are announced and not sent."""

        def run(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.send_header("Content-Length", str(len(body) + missing))
            handler.end_headers()
            handler.wfile.write(body)

        self.connections.append(run)

    @property
    def cursors(self) -> list[str | None]:
        return [request.get("last-event-id") for request in self.requests]


@pytest.fixture
def script() -> Iterator[Script]:
    found = Script()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.requests.append({name.lower(): value for name, value in self.headers.items()})
            self.close_connection = True
            if found.connections:
                found.connections.pop(0)(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def event(id: str | None, type: str, status: str) -> bytes:
    job = {"status": status}
    data = (
        job
        if type in ("snapshot", "reset")
        else {"jobId": JOB, "at": "2030-01-31T12:00:00Z", "job": job}
    )
    line = "" if id is None else f"id: {id}\n"
    return f"event: {type}\n{line}retry: 30\ndata: {json.dumps(data)}\n\n".encode()


END = b"event: end\ndata: {}\n\n"

# --- events


def test_a_cut_connection_continues_after_the_last_event(script: Script) -> None:
    script.stream(event("a-3", "snapshot", "PENDING"), event("a-5", "status", "PROCESSING"))
    # The connection ends within an event; the next one repeats an event that is known.
    script.stream(event("a-7", "step", "PROCESSING"), event("a-8", "status", "RETRYING")[:-5])
    script.stream(event("a-7", "step", "PROCESSING"), event("a-8", "status", "RETRYING"))
    script.stream(event(None, "progress", "PROCESSING"), event("a-11", "status", "DONE"), END)
    seen, interrupts = run_node(READ + "say(await read()); say(interrupts);", script.url)
    assert seen == [
        ["snapshot", "a-3", "PENDING"],
        ["status", "a-5", "PROCESSING"],
        ["step", "a-7", "PROCESSING"],
        ["status", "a-8", "RETRYING"],
        ["progress", None, "PROCESSING"],
        ["status", "a-11", "DONE"],
    ]
    assert script.cursors == [None, "a-5", "a-7", "a-8"]
    assert [name for name, _ in interrupts] == ["Unreachable"] * 3
    pauses = [pause for _, pause in interrupts]
    assert all(0.015 <= pause <= 0.045 for pause in pauses) and len(set(pauses)) == 3  # jitter
    first = script.requests[0]
    assert (first["authorization"], first["accept"]) == ("Bearer secret", "text/event-stream")


def test_a_reset_replaces_what_is_known(script: Script) -> None:
    """In a new epoch the numbers begin anew."""
    script.stream(event("a-90", "status", "PROCESSING"))
    script.stream(event("b-2", "reset", "PENDING"), event("b-3", "status", "DONE"), END)
    (seen,) = run_node(READ + 'say(await read({ after: "a-89" }));', script.url)
    assert seen == [
        ["status", "a-90", "PROCESSING"],
        ["reset", "b-2", "PENDING"],
        ["status", "b-3", "DONE"],
    ]
    assert script.cursors == ["a-89", "a-90"]


def test_a_job_that_has_ended_is_the_end(script: Script) -> None:
    script.answer(204)
    assert run_node(READ + 'say(await read({ after: "a-9" }));', script.url) == [[]]


def test_a_service_that_is_down_for_a_moment_is_asked_again(script: Script) -> None:
    script.stream(b"retry: 30\n\n")
    script.answer(503, b"{}", Retry_After="1")
    script.answer(200, b"<html>a login page</html>", Content_Type="text/html")
    script.stream()
    script.stream(event("a-3", "snapshot", "DONE"), END)
    seen, interrupts = run_node(READ + "say(await read()); say(interrupts);", script.url)
    assert seen == [["snapshot", "a-3", "DONE"]]
    assert [name for name, _ in interrupts] == [
        "Unreachable",
        "ProblemError",
        "Unreachable",
        "Unreachable",
    ]
    assert interrupts[1][1] >= 1


def test_what_cannot_succeed_is_not_repeated(script: Script) -> None:
    script.answer(
        404, b'{"title": "Not found", "code": "not-found"}', Content_Type="application/problem+json"
    )
    (said,) = run_node(
        READ + "await read().catch((error) => say([error.status, error.code]));", script.url
    )
    assert said == [404, "not-found"]
    assert len(script.requests) == 1


def test_a_service_that_stays_away_ends_the_iteration(script: Script) -> None:
    script.stream(b"retry: 30\n\n")
    (said,) = run_node(
        READ + "await read({ retryFor: 0.3 }).catch((error) => say(error.name));", script.url
    )
    assert said == "Unreachable"
    assert len(script.requests) > 1


def test_a_silent_connection_is_replaced(script: Script) -> None:
    script.stream(event("a-3", "snapshot", "PENDING"), hold=True)
    for _ in range(9):  # on a busy machine a connection that answers may be silent for so long, too
        script.stream(b":\n\n", event("a-4", "status", "DONE"), END)
    (seen,) = run_node(READ + "say(await read({ silence: 1 }));", script.url)
    assert [id for _, id, _ in seen] == ["a-3", "a-4"]
    until(script.closed.is_set)


def test_leaving_the_loop_and_aborting_close_the_connection(script: Script) -> None:
    script.stream(event("a-3", "snapshot", "PENDING"), hold=True)
    leave = READ + f'for await (const event of client.events("{JOB}")) {{ say(event.type); break; }}'
    assert run_node(leave, script.url) == ["snapshot"]
    until(script.closed.is_set)
    script.closed.clear()
    script.stream(event("a-3", "snapshot", "PENDING"), hold=True)
    abort = READ + (
        "const controller = new AbortController();"
        f'try {{ for await (const _ of client.events("{JOB}", {{ signal: controller.signal }}))'
        ' controller.abort(new Error("enough")); } catch (error) { say(error.message); }'
    )
    assert run_node(abort, script.url) == ["enough"]
    until(script.closed.is_set)


def chunk(id: str, generation: int, index: int) -> bytes:
    data = {"jobId": JOB, "job": {"output": index, "generation": generation, "index": index}}
    return f"event: output\nid: {id}\nretry: 30\ndata: {json.dumps(data)}\n\n".encode()


def test_output_is_read_again_after_a_reset_without_a_repeat(script: Script) -> None:
    script.stream(chunk("a-1", 1, 0), chunk("a-2", 1, 1))
    script.stream(event("b-7", "reset", "PROCESSING"), hold=True)
    script.stream(chunk("b-1", 1, 0), chunk("b-2", 1, 1), chunk("b-3", 1, 2), chunk("b-4", 2, 0), END)
    read = f"""
    const seen = [];
    for await (const {{ id, generation, index }} of client.job("{JOB}").stream()) seen.push([id, generation, index]);
    say(seen);
    """
    (seen,) = run_node(READ + read, script.url)
    assert seen == [["a-1", 1, 0], ["a-2", 1, 1], ["b-3", 1, 2], ["b-4", 2, 0]]
    assert script.cursors == [None, "a-2", None]
    until(script.closed.is_set)


def test_the_parser_takes_every_form_of_the_format(script: Script) -> None:
    """Line ends of all kinds, bytes that are cut anywhere, comments, several data lines, fields that are not known."""
    text = (
        ': hello\r\n\r\nid: a-1\r\nevent: status\r\ndata: {"jobId": "x",\r\ndata:"job": {"status": "dünn ✓"}}\r\n\r\n'
        'unknown: x\rid: a-2\revent: log\rdata: {"job": {"status": "CR"}}\r\r'
        'event: nothing\n\nid:a-3\nevent:log\ndata:{"job": {"status": "LF"}}\n\n'
    ).encode()
    script.stream(*(text[i : i + 1] for i in range(len(text))), END)
    (seen,) = run_node(READ + "say(await read());", script.url)
    assert seen == [["status", "a-1", "dünn ✓"], ["log", "a-2", "CR"], ["log", "a-3", "LF"]]


def test_a_filter_becomes_the_query(script: Script) -> None:
    script.answer(204)
    script.answer(204)
    watch = 'for await (const _ of client.events({ kind: "a b", label: { team: "ops" }, type: ["status", "log"] }));'
    paths: list[str] = []
    original = script.connections[0]

    def note(handler: BaseHTTPRequestHandler) -> None:
        paths.append(handler.path)
        original(handler)

    script.connections[0] = note
    run_node(READ + watch, script.url)
    assert paths == ["/events?kind=a+b&label=team%3Aops&type=status&type=log"]


# --- waiting


def test_a_broken_response_is_a_failed_request_and_not_a_failed_job(script: Script) -> None:
    done = json.dumps({"jobId": JOB, "kind": "a", "status": "DONE", "result": 7}).encode()
    script.answer(200, done[:20], missing=50)
    script.answer(200, b"")
    script.answer(502, b"<html>bad gateway</html>")
    script.answer(200, done)
    assert run_node(READ + f'say(await client.job("{JOB}").result());', script.url) == [7]
    assert len(script.requests) == 4


@pytest.mark.parametrize("target", ["base", "({ signal }) => fetch(base, { signal })"])
def test_a_failed_poll_is_not_a_failed_job(script: Script, target: str) -> None:
    """The hint of a response replaces the interval, which is too long here."""
    script.answer(200, b'{"status": "queued"}', Retry_After="0")
    script.connections.append(lambda handler: None)  # closes the connection
    script.answer(200, b'{"status": "runn', missing=5)
    script.answer(429, b"", Retry_After="0")
    script.answer(200, b'{"status": "IN_PROGRESS"}', Retry_After="Wed, 21 Oct 2015 07:28:00 GMT")
    script.answer(200, b'{"status": "Succeeded"}')
    read = f"say(await poll({target}, {{ firstInterval: 0, longestInterval: 60, timeout: 30 }}));"
    assert run_node(read, script.url) == [{"status": "Succeeded"}]
    assert len(script.requests) == 6


def test_a_poll_that_cannot_succeed_ends(script: Script) -> None:
    script.answer(401, b'{"message": "no key"}')
    script.answer(200, b'{"status": "hibernating"}')
    script.answer(200, b'{"status": "hibernating"}')
    script.answer(200, b'{"status": "done"}')
    read = """
    const options = { firstInterval: 0, longestInterval: 0 };
    await poll(base, options).catch((error) => say([error.name, error.status, error.problem.message]));
    await poll(base, options).catch((error) => say([error.name, error.message.includes("hibernating")]));
    const words = [];
    console.warn = (text) => words.push(text.includes("hibernating"));
    say([await poll(base, { ...options, timeout: 30 }), words]);
    """
    refused, unknown, known = run_node(read, script.url)
    assert refused == ["ProblemError", 401, "no key"]
    assert unknown == ["BideError", True]
    assert known == [{"status": "done"}, [True]]


def test_a_mistake_of_the_caller_is_not_retried(script: Script) -> None:
    read = """
    const client = new Client(base);
    const fails = (promise) => promise.catch((error) => say(error.name));
    await fails(client.submit("a", {}, { idempotencyKey: "ключ" }));
    await fails(poll("/no/host", { firstInterval: 0 }));
    await fails(poll(base, { size: "huge" }));
    await fails(client.job("x").wait({ deadline: "tomorrow" }));
    try { new Budget({ limit: "60 per minute" }); } catch (error) { say(error.name); }
    try { new Client(); } catch (error) { say(error.name); }
    """
    names = run_node(read, script.url)
    assert names == ["TypeError", "TypeError", "RangeError", "TypeError", "RangeError", "TypeError"]
    assert script.requests == []
