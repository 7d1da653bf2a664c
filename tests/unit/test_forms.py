"""Forms are read the same, wherever their bytes are cut."""

from __future__ import annotations

import bz2
import io
import zipfile
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.errors import MalformedRequest
from bide.server.http.forms import (
    MAX_PART_HEADER,
    MAX_PARTS,
    FormParser,
    FormPart,
    read_boundary,
)
from bide.server.media_types import HEAD, detect, is_one_of
from bide.server.uploads.names import MAX_NAME_BYTES, clean_name, clean_type, read_disposition

TYPE = "multipart/form-data; boundary=b-1"
TRICKY = (
    st.lists(
        st.sampled_from(
            [b"\r", b"\n", b"\r\n", b"-", b"--", b"--b-1", b"\r\n--b-", b"\r\n--b", b"x", b"\0"]
        ),
        max_size=12,
    )
    .map(b"".join)
    .filter(lambda data: b"\r\n--b-1" not in b"\r\n" + data)
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters='"\\\r\n%'), min_size=1, max_size=20)
PARTS = st.lists(st.tuples(NAMES, st.none() | NAMES, TRICKY), max_size=5)


def written(parts: list[tuple[str, str | None, bytes]]) -> bytes:
    body = b""
    for name, filename, data in parts:
        body += b'--b-1\r\nContent-Disposition: form-data; name="' + name.encode() + b'"'
        if filename is not None:
            body += b'; filename="' + filename.encode() + b'"\r\nContent-Type: text/plain'
        body += b"\r\n\r\n" + data + b"\r\n"
    return body + b"--b-1--\r\n"


def read(pieces: list[bytes]) -> list[tuple[str, str | None, bytes]]:
    parser = FormParser(TYPE)
    found: list[list[Any]] = []
    ends = 0
    for piece in pieces:
        for event in parser.feed(piece):
            if isinstance(event, FormPart):
                found.append([event.name, event.filename, b""])
            elif event is None:
                ends += 1
            else:
                found[-1][2] += event
    parser.close()
    assert ends == len(found)
    return [(name, filename, data) for name, filename, data in found]


@given(
    parts=PARTS,
    cuts=st.lists(st.integers(0, 400), max_size=8),
    preamble=st.sampled_from([b"", b"hi\r\n"]),
)
def test_a_form_is_read_wherever_it_is_cut(
    parts: list[tuple[str, str | None, bytes]], cuts: list[int], preamble: bytes
) -> None:
    body = preamble + written(parts) + b"epilogue"
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[a:b] for a, b in pairwise(places)]
    assert read(pieces) == parts
    assert read([body[i : i + 1] for i in range(len(body))]) == parts


@given(st.binary(max_size=300))
def test_what_is_no_form_is_refused_and_breaks_nothing(body: bytes) -> None:
    try:
        read([body])
    except MalformedRequest:
        return
    raise AssertionError("random bytes are no form")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b-1",
        b"--b-1\r\n",
        b"--b-1 x\r\n\r\n",
        b"--b-1\r\nContent-Disposition: attachment\r\n\r\nx\r\n--b-1--",
        b"--b-1\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b-1--",
        b"--b-1\r\nno colon\r\n\r\nx\r\n--b-1--",
        b"--b-1\r\nX: " + b"x" * (MAX_PART_HEADER + 10),
        written([("a", None, b"x")] * (MAX_PARTS + 1)),
        written([("a", None, b"x")])[:-6],
    ],
)
def test_a_form_that_is_not_right_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read([body])


def test_the_bytes_of_a_file_are_passed_on_without_a_copy() -> None:
    parser, block = FormParser(TYPE), bytes(256 * 1024)
    head = b'--b-1\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n'
    list(parser.feed(head))
    for _ in range(3):
        (passed,) = parser.feed(block)
        assert passed is block
    assert list(parser.feed(b"\r\n--b-1--\r\n")) == [None]
    parser.close()


def test_headers_of_a_part() -> None:
    parser = FormParser(TYPE)
    head = (
        b'--b-1\r\ncontent-disposition: form-data; name="f\xc3\xbcr"; filename="\xff.txt"; '
        b"filename*=utf-8''%e2%82%ac.txt\r\ncontent-type: text/plain; charset=utf-8\r\n"
        b"content-digest: sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:\r\n\r\n"
    )
    (part,) = parser.feed(head)
    assert isinstance(part, FormPart)
    assert (part.name, part.filename) == ("für", "€.txt")
    assert part.content_type == "text/plain; charset=utf-8"
    assert part.sha256 is not None and part.sha256.startswith("5f8f04f6")
    parser = FormParser(TYPE)
    (part,) = parser.feed(b'--b-1\r\nContent-Disposition: form-data; name="a"; filename="\xff"\r\n\r\n')
    assert isinstance(part, FormPart) and part.filename == "\ufffd"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ('attachment; filename="a b.txt"', "a b.txt"),
        ("attachment; filename=a.txt", "a.txt"),
        ("attachment; filename=\"x\"; filename*=UTF-8''%e2%82%ac.txt", "€.txt"),
        ('form-data; filename="a\\"b.txt"', 'a"b.txt'),
        ('form-data; filename="a%22b.txt"', 'a"b.txt'),
        ("attachment", None),
    ],
)
def test_file_names_of_headers(value: str, name: str | None) -> None:
    assert read_disposition(value) == name


def test_boundaries() -> None:
    assert read_boundary("multipart/form-data; boundary=abc") == b"abc"
    assert read_boundary('multipart/form-data; charset=utf-8; boundary="a b"') == b"a b"
    for wrong in ("multipart/form-data", "multipart/form-data; boundary=", "x; boundary=" + "a" * 71):
        with pytest.raises(MalformedRequest):
            read_boundary(wrong)


@given(st.text(max_size=300))
def test_every_name_becomes_one_that_a_file_can_have(given: str) -> None:
    name = clean_name(given)
    assert name and name not in (".", "..")
    assert not set(name) & set("/\\\0\r\n")
    assert name.isprintable()
    assert len(name.encode()) <= MAX_NAME_BYTES
    assert clean_name(name) == name


SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
DOCUMENT = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def zipped(*names: str) -> bytes:
    """The first bytes of a zip file with these files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            archive.writestr(name, "application/vnd.oasis.opendocument.text")
    return file.getvalue()[:HEAD]


def test_content_types() -> None:
    assert clean_type("video/mp4") == "video/mp4"
    assert clean_type("text/plain; charset=utf-8") == "text/plain; charset=utf-8"
    for wrong in (None, "", "video", "a/b\r\nX: y", "a" * 300 + "/b"):
        assert clean_type(wrong) == "application/octet-stream"


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"\x7fELF\x02", "application/x-executable"),
        (b"MZ\x90\x00", "application/vnd.microsoft.portable-executable"),
        (b"\x00\x00\x00\x20ftypisom", "video/mp4"),
        (b"\x00\x00\x00\x20ftypqt  ", "video/quicktime"),
        (b"\x1aE\xdf\xa3", "video/x-matroska"),
        (b"RIFF....AVI LIST", "video/vnd.avi"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"%PDF-1.7", "application/pdf"),
        (b"#!/bin/sh\n", "text/x-script"),
        (b"  <!DOCTYPE html><p>", "text/html"),
        ("Grüße".encode(), "text/plain"),
        (("x" * (HEAD - 1) + "ü").encode()[:HEAD], "text/plain"),
        ("Name;Stadt\nMüller;Köln\n".encode("cp1252"), "text/plain"),
        ("Name\tStadt\n".encode("utf-16"), "text/plain"),
        (bytes(range(200, 256)), ""),
        (zipped("[Content_Types].xml", "_rels/.rels", "xl/workbook.xml"), SHEET),
        (zipped("word/document.xml", "[Content_Types].xml"), DOCUMENT),
        (zipped("docProps/app.xml", "word/document.xml"), "application/zip"),
        (zipped("word/list.txt", "xl/a.txt"), "application/zip"),
        (b"BMI,age\n21,40\n", "text/plain"),
        (b"MZ;PLZ\nx;50667\n", "text/plain"),
        (b"ID3,score\n1,2\n", "text/plain"),
        (b"GIF89a is a format of images\n", "text/plain"),
        (b"BM\x36\x10\x0e\x00\x00\x00\x00\x00\x36\x00", "image/bmp"),
        (b"ID3\x03\x00\x00\x00\x00\x21\x76TIT2", "audio/mpeg"),
        (b"GIF89a\x01\x00\x01\x00\x80\x00\x00", "image/gif"),
        (bz2.compress(b"a few words"), "application/x-bzip2"),
        (b"{\\rtf1 plain", "application/rtf"),
        (zipped("a.txt", "notes/xl/b.txt"), "application/zip"),
        (zipped("mimetype"), "application/vnd.oasis.opendocument.text"),
        (b"", "inode/x-empty"),
    ],
)
def test_what_the_first_bytes_show(head: bytes, found: str) -> None:
    assert detect(head) == found


@pytest.mark.parametrize(
    ("declared", "detected", "types", "taken"),
    [
        ("video/mp4", "application/x-executable", ("video/*",), False),
        ("application/octet-stream", "video/mp4", ("video/*",), True),
        ("video/webm", "video/x-matroska", ("video/webm",), True),
        ("video/mp4", "", ("video/*",), False),
        ("video/mp4", "text/plain", ("video/*",), False),
        ("text/csv", "text/plain", ("text/csv",), True),
        ("application/json", "text/plain", ("application/json",), True),
        ("application/x-own", "", ("application/x-own",), True),
        ("application/x-own", "image/png", ("application/x-own",), False),
        ("application/pdf", "", ("application/pdf",), False),
        (DOCUMENT, DOCUMENT, (DOCUMENT,), True),
        (DOCUMENT, "application/zip", (DOCUMENT,), True),
        (DOCUMENT, SHEET, (DOCUMENT,), False),
        ("application/octet-stream", SHEET, (SHEET,), True),
        (SHEET, SHEET, ("application/zip",), False),
        (SHEET, "", (SHEET,), False),
        ("image/svg+xml", "text/html", ("image/*",), False),
        ("anything/x", "audio/flac", ("*/*",), True),
        ("text/csv", "inode/x-empty", ("text/csv",), True),
        ("application/x-own", "inode/x-empty", ("application/x-own",), True),
        ("video/mp4", "inode/x-empty", ("video/*",), False),
    ],
)
def test_which_types_are_taken(
    declared: str, detected: str, types: tuple[str, ...], taken: bool
) -> None:
    assert is_one_of(declared, detected, types) == taken


@pytest.mark.parametrize(
    "declared", ["application/vnd.ms-excel", "application/octet-stream", "text/csv"]
)
def test_a_csv_file_is_one_whatever_the_browser_calls_it(declared: str) -> None:
    assert is_one_of(declared, "text/plain", ("text/csv",), "Grades 2026.CSV")
    assert is_one_of(declared, "inode/x-empty", ("text/csv",), "grades.csv")
    assert not is_one_of(declared, "application/x-executable", ("text/csv",), "grades.csv")
    assert not is_one_of(declared, "", ("text/csv",), "grades.csv"), "it is not a text"
    assert not is_one_of("application/octet-stream", "text/plain", ("text/csv",), "grades.json")
