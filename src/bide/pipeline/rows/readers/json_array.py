"""A JSON array is split into groups of complete records, without holding the whole array in memory.

`guesses` looks for the last `}` before a comma and a `{` near the end of the data. The caller decodes up to there: if the
guess is wrong, it ends inside a record or a text and is not JSON. If no guess is right (arrays inside records, broken
records), `records` scans the data token by token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from bide.pipeline.plan.schema import parts
from bide.pipeline.rows.readers.archive import ByteStream
from bide.pipeline.rows.report import BadSource

READ = 1 << 20
GUESSES = 8  # a wrong guess costs a tenth of the scan by token
LONGEST_TEXT = 4 << 20  # bytes; outside of records
# Possessive quantifiers: the inside of a text is never scanned twice.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\],:]', re.DOTALL)
_RECORD_START = re.compile(rb'\{[ \t\r\n]*"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SPACE = b" \t\r\n"


def record_start(data: bytes) -> bytes:
    """The beginning of a record up to its first key. Other records begin like it; objects inside them mostly do not."""
    found = _RECORD_START.match(data)
    return found[0] if found is not None else b"{"


def guesses(data: bytes, start: bytes) -> Iterator[int]:
    """Possible ends of a group of complete records, the longest group first."""
    at = len(data)
    for _ in range(GUESSES):
        at = data.rfind(start, 1, at)
        if at < 0:
            return
        # Back from the brace, over space and comma, to the end of the previous record.
        before = data[max(0, at - 64) : at].rstrip(_SPACE)
        if before.endswith(b",") and before[:-1].rstrip(_SPACE).endswith(b"}"):
            yield data.rfind(b"}", 0, at) + 1


def records(data: bytes) -> tuple[list[bytes], int, bool]:
    """The complete records at the start of `data`, their end, and whether the array ends there.

    The end includes the comma or bracket that follows. Without one, the last record may be incomplete and is left out.
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
            break  # an incomplete text
        elif depth == 0 and token in (b",", b"]"):
            record = data[start : match.start()].strip(_SPACE)
            if record or token == b",":
                found.append(record)
            start = match.end()
            if token == b"]":
                return found, start, True
    return found, start, False


def find_array(stream: ByteStream, name: str, path: str) -> int:
    """Read up to the first record of the array at a path. Return how many objects are open around it."""
    wanted = tuple(parts(path)) if path else ()
    # Of each open object or array: its path, and whether it is an object.
    around: list[tuple[tuple[str, ...], bool]] = []
    key = text = ""
    for token, data, end in _tokens(stream, name):
        if token[:1] == b'"':
            text = _decoded(token)
        elif token == b":":
            key = text
        elif token in (b"{", b"["):
            inside, of_object = around[-1] if around else ((), True)
            # A path cannot go through an array, because it names no index.
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
    advice = "" if path else '. Set the path of its records, e.g. records = "data"'
    raise BadSource(name, f"the JSON document has no array {where}{advice}")


def finish(stream: ByteStream, name: str, depth: int) -> None:
    """Check that the rest of the document is complete."""
    if depth:
        for token, data, end in _tokens(stream, name):
            depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
            if not depth:
                stream.unread(data[end:])
                break
        else:
            raise BadSource(name, "the JSON document is truncated: the download is incomplete")
    while more := stream.read(READ):
        if more.strip(_SPACE):
            raise BadSource(name, "there is data after the end of the JSON document")


def _tokens(stream: ByteStream, name: str) -> Iterator[tuple[bytes, bytes, int]]:
    """Every structural token and text, with the data that has it and its end there."""
    data = b""
    while more := stream.read(max(READ, len(data))):
        data += more
        at = 0
        for match in _TOKEN.finditer(data):
            if match[0] == b'"':
                break  # an incomplete text
            at = match.end()
            yield match[0], data, at
        data = data[at:] if b'"' in data[at:] else b""
        if len(data) > LONGEST_TEXT:
            raise BadSource(
                name, f"it has a text of more than {LONGEST_TEXT} bytes, or a quote that is not closed"
            )


def _decoded(token: bytes) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token.decode(errors="replace")
