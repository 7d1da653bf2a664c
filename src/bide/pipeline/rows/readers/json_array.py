"""A JSON array taken apart into runs of whole records, without reading it as a whole.

A run is found by guessing: the last `}` before a comma and a `{` that is near the end of what is there. Whether the guess
was right is told by who decodes the run, for what ends inside of a record or a text is not JSON. Where guessing does not
help (arrays inside of records, damaged records), `records` goes through it token by token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from bide.pipeline.plan.schema import parts
from bide.pipeline.rows.readers.archive import ByteStream
from bide.pipeline.rows.report import BadSource

READ = 1 << 20
GUESSES = 8  # a wrong one costs a tenth of going through token by token
LONGEST_TEXT = 4 << 20  # outside of records
# Possessive: what is inside of a text is never gone back over.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\],:]', re.DOTALL)
_OPENING = re.compile(rb'\{[ \t\r\n]*"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SPACE = b" \t\r\n"


def opening(data: bytes) -> bytes:
    """How a record begins, up to its first key: others begin so too, and what is inside of them mostly does not."""
    found = _OPENING.match(data)
    return found[0] if found is not None else b"{"


def guesses(data: bytes, opening: bytes) -> Iterator[int]:
    """Where a run of whole records may end, the longest first."""
    at = len(data)
    for _ in range(GUESSES):
        at = data.rfind(opening, 1, at)
        if at < 0:
            return
        # From the brace back over space and comma to the end of the record before it.
        before = data[max(0, at - 64) : at].rstrip(_SPACE)
        if before.endswith(b",") and before[:-1].rstrip(_SPACE).endswith(b"}"):
            yield data.rfind(b"}", 0, at) + 1


def records(data: bytes) -> tuple[list[bytes], int, bool]:
    """The whole records at the start of `data`, how far they go, and whether the array ends there.

    How far includes the comma or the bracket that follows; the last record of what is there is not known to be whole.
    """
    found: list[bytes] = []
    depth = start = 0
    for match in _TOKEN.finditer(data):
        token = match[0]
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]") and depth:
            depth -= 1
        elif token == b'"':
            break  # a text that goes on
        elif depth == 0 and token in (b",", b"]"):
            record = data[start : match.start()].strip(_SPACE)
            if record or token == b",":
                found.append(record)
            start = match.end()
            if token == b"]":
                return found, start, True
    return found, start, False


def find_array(stream: ByteStream, name: str, path: str) -> int:
    """Reads on to the first record of the array at a path; how many objects are open around it."""
    wanted = tuple(parts(path)) if path else ()
    around: list[
        tuple[tuple[str, ...], bool]
    ] = []  # of each open object or array: its path, and which it is
    key = text = ""
    for token, data, end in _tokens(stream, name):
        if token[:1] == b'"':
            text = _decoded(token)
        elif token == b":":
            key = text
        elif token in (b"{", b"["):
            inside, of_object = around[-1] if around else ((), True)
            # No path leads through an array: which of its records would be meant?
            here = (*inside, key if of_object else "[]") if around else ()
            if token == b"[" and here == wanted:
                stream.unread(data[end:])
                return len(around)
            around.append((here, token == b"{"))
        elif token in (b"}", b"]"):
            del around[-1:]
            if not around:
                break
    where = f"at {path!r}" if path else "at its top"
    advice = "" if path else ': say where its records are, like records = "data"'
    raise BadSource(name, f"the JSON document has no array {where}{advice}")


def finish(stream: ByteStream, name: str, depth: int) -> None:
    """What follows the array must close what is open around it: a document that is cut off is no document."""
    if depth:
        for token, data, end in _tokens(stream, name):
            depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
            if not depth:
                stream.unread(data[end:])
                break
        else:
            raise BadSource(name, "the JSON document is cut off: the download is not whole")
    while more := stream.read(READ):
        if more.strip(_SPACE):
            raise BadSource(name, "something follows the end of the JSON document")


def _tokens(stream: ByteStream, name: str) -> Iterator[tuple[bytes, bytes, int]]:
    """Every token that gives a document its shape, with the data it was found in and its end there."""
    data = b""
    while more := stream.read(max(READ, len(data))):
        data += more
        at = 0
        for match in _TOKEN.finditer(data):
            if match[0] == b'"':
                break  # a text that goes on
            at = match.end()
            yield match[0], data, at
        data = data[at:] if b'"' in data[at:] else b""
        if len(data) > LONGEST_TEXT:
            raise BadSource(name, f"a text in it is longer than {LONGEST_TEXT} bytes, or never ends")


def _decoded(token: bytes) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token.decode(errors="replace")
