"""Detects the media type of a file from its first bytes, and checks it against the types that a handler accepts.

1. Only formats with a signature are detected; other files are text or unknown. The signature outranks everything else.
   A signature of letters and digits counts only if the file is not text: a CSV file may begin with `BMI,age`.
2. The type of a text is what the client declares or what the extension of its name says, because browsers on Windows
   send a CSV file as `application/vnd.ms-excel`, and curl sends `application/octet-stream`.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

HEAD = 2000  # bytes that `detect` needs, enough for the first names in an office document
TEXT = "text/plain"
EMPTY = "inode/x-empty"

# (offset, signature, type); the first match counts.
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"MZ", "application/vnd.microsoft.portable-executable"),
    (0, b"\xcf\xfa\xed\xfe", "application/x-mach-binary"),
    (0, b"\xce\xfa\xed\xfe", "application/x-mach-binary"),
    (0, b"\xfe\xed\xfa\xce", "application/x-mach-binary"),
    (0, b"\xfe\xed\xfa\xcf", "application/x-mach-binary"),
    (0, b"\xca\xfe\xba\xbe", "application/java-vm"),
    (0, b"dex\n", "application/vnd.android.dex"),
    (0, b"\x00asm", "application/wasm"),
    (0, b"#!", "text/x-script"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"BM", "image/bmp"),
    (0, b"\x00\x00\x01\x00", "image/vnd.microsoft.icon"),
    (0, b"8BPS", "image/vnd.adobe.photoshop"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"%!PS", "application/postscript"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (0, b"{\\rtf", "application/rtf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"(\xb5/\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (257, b"ustar", "application/x-tar"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"\x1aE\xdf\xa3", "video/x-matroska"),
    (0, b"FLV\x01", "video/x-flv"),
    (0, b"\x00\x00\x01\xba", "video/mpeg"),
    (0, b"\x00\x00\x01\xb3", "video/mpeg"),
    (0, b"0&\xb2u\x8ef\xcf\x11", "video/x-ms-asf"),
    (0, b"OggS", "application/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\xff\xf2", "audio/mpeg"),
    (0, b"\xff\xf1", "audio/aac"),
    (0, b"\xff\xf9", "audio/aac"),
    (0, b"fLaC", "audio/flac"),
    (0, b"MThd", "audio/midi"),
    (0, b"#!AMR", "audio/amr"),
    (0, b"wOF2", "font/woff2"),
    (0, b"wOFF", "font/woff"),
    (0, b"OTTO", "font/otf"),
    (0, b"\x00\x01\x00\x00\x00", "font/ttf"),
)
# Formats that are text, or may be.
_TEXT_FORMATS = {"text/x-script", "application/pdf", "application/postscript", "application/rtf"}
_RIFF = {b"AVI ": "video/vnd.avi", b"WAVE": "audio/wav", b"WEBP": "image/webp"}
_FTYP = {
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    **dict.fromkeys((b"heic", b"heix", b"mif1", b"msf1", b"hevc"), "image/heic"),
    b"qt  ": "video/quicktime",
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
}
_MARKUP = (b"<!doctype html", b"<html", b"<head", b"<script", b"<body", b"<iframe")
# Other names of a type, and types that a container format may hold.
_ALSO: dict[str, frozenset[str]] = {
    "video/x-matroska": frozenset({"video/webm", "audio/webm", "audio/x-matroska", "video/matroska"}),
    "application/ogg": frozenset({"audio/ogg", "video/ogg", "audio/opus"}),
    "video/mp4": frozenset({"audio/mp4", "video/x-m4v", "video/3gpp", "audio/x-m4a"}),
    "audio/mp4": frozenset({"audio/x-m4a", "video/mp4"}),
    "video/x-ms-asf": frozenset({"video/x-ms-wmv", "audio/x-ms-wma"}),
    "video/vnd.avi": frozenset({"video/x-msvideo", "video/avi"}),
    "video/mp2t": frozenset({"video/mpeg"}),
    "audio/wav": frozenset({"audio/x-wav", "audio/wave", "audio/vnd.wave"}),
    "audio/flac": frozenset({"audio/x-flac"}),
    "audio/aac": frozenset({"audio/x-aac"}),
    "audio/mpeg": frozenset({"audio/mp3"}),
    "image/jpeg": frozenset({"image/jpg"}),
    "image/vnd.microsoft.icon": frozenset({"image/x-icon"}),
    "application/gzip": frozenset({"application/x-gzip"}),
    "application/zip": frozenset({"application/x-zip-compressed"}),
    "application/x-ole-storage": frozenset({"application/msword", "application/vnd.ms-excel"}),
}
_OFFICE = "application/vnd.openxmlformats-officedocument."
# The folder in the zip file, and its type.
_OFFICE_FOLDERS = (
    (b"xl/", _OFFICE + "spreadsheetml.sheet"),
    (b"word/", _OFFICE + "wordprocessingml.document"),
    (b"ppt/", _OFFICE + "presentationml.presentation"),
)
_OFFICE_TYPES = b"[Content_Types].xml"  # in every office document
_OFFICE_EXTENSIONS = dict(
    zip(("xlsx", "docx", "pptx"), (name for _, name in _OFFICE_FOLDERS), strict=True)
)
_ENTRY = b"PK\x03\x04"  # of a file in a zip file; its name begins 30 bytes later
# Types of texts by extension.
_EXTENSIONS = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "txt": TEXT,
    "md": "text/markdown",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "jsonl": "application/x-ndjson",
    "geojson": "application/geo+json",
    "xml": "application/xml",
    "svg": "image/svg+xml",
    "srt": "application/x-subrip",
    "vtt": "text/vtt",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "toml": "application/toml",
    "sql": "application/sql",
    "ics": "text/calendar",
}
_MOST_FOREIGN = 0.3  # of the bytes of a text in another encoding than UTF-8
_TEXTUAL = ("json", "xml", "javascript", "yaml", "toml", "csv", "x-ndjson", "sql")


def detect(head: bytes) -> str:
    """Return the type of a file by its first bytes: TEXT for text, EMPTY for no bytes, "" if it is unknown."""
    if not head:
        return EMPTY
    if head[:4] == b"RIFF" and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head[4:8] == b"ftyp":
        return _FTYP.get(head[8:12], "video/mp4")
    if head[:1] == b"G" and len(head) > 376 and head[188] == head[376] == 0x47:
        return "video/mp2t"
    is_text = _is_text(head)
    for offset, signature, name in _SIGNATURES:
        if head.startswith(signature, offset) and not (is_text and _is_word(signature, name)):
            return _in_zip(head) if name == "application/zip" else name
    if head.lstrip()[:14].lower().startswith(_MARKUP):
        return "text/html"
    return TEXT if is_text else ""


def _is_word(signature: bytes, name: str) -> bool:
    """Return whether a text may begin with this signature."""
    return (
        name not in _TEXT_FORMATS and signature.decode("latin-1").isprintable() and signature.isascii()
    )


def _in_zip(head: bytes) -> str:
    """Return the type of a zip file, by the names at its beginning. Other zip files may have a folder `word`, too."""
    if head[30:38] == b"mimetype":  # OpenDocument and EPUB begin with their type, uncompressed
        size = int.from_bytes(head[18:22], "little")
        return head[38 : 38 + size].decode("ascii", "replace")[:100] or "application/zip"
    names = [entry[26:] for entry in head.split(_ENTRY)[1:]]
    found = [kind for folder, kind in _OFFICE_FOLDERS if any(name.startswith(folder) for name in names)]
    if found and any(name.startswith(_OFFICE_TYPES) for name in names):
        return found[0]
    return "application/zip"


def _is_text(head: bytes) -> bool:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and len(head) > 2:
        return True
    if any(byte < 9 or 13 < byte < 27 for byte in head):
        return False
    try:
        # The last character may be incomplete.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
    except UnicodeDecodeError:
        return sum(byte > 127 for byte in head) <= _MOST_FOREIGN * len(head)
    return True


def is_one_of(declared: str, detected: str, types: Sequence[str], name: str = "") -> bool:
    """Return whether a file has one of these types, which may end in `/*`. `name` is the name of the file."""
    if detected == EMPTY:
        return any(is_one_of(declared, one, types, name) for one in (TEXT, ""))
    declared = declared.partition(";")[0].strip().lower()
    extension = name.rpartition(".")[2].lower()
    if detected == TEXT:
        by_name = _EXTENSIONS.get(extension, TEXT)
        return any(_matches(one, types) for one in (TEXT, by_name)) or (
            _textual(declared) and _matches(declared, types)
        )
    if detected == "application/zip":  # an office document whose first file is large shows no more
        office = declared if declared.startswith(_OFFICE) else _OFFICE_EXTENSIONS.get(extension, "")
        if _matches(office, types):
            return True
    if detected:
        return any(_matches(one, types) for one in (detected, *_ALSO.get(detected, ())))
    # Without a signature the declared type counts, unless files of that type have a signature.
    return _matches(declared, types) and not _has_signature(declared)


def accepts_texts(types: Sequence[str]) -> bool:
    """Return whether a text may have one of these types. Its name or its declared type then decides."""
    return any(_textual(one) or one in _EXTENSIONS.values() for one in map(str.lower, types))


def _matches(name: str, types: Sequence[str]) -> bool:
    family = name.partition("/")[0] + "/*"
    return any(wanted in (name, family, "*/*") for wanted in (t.lower() for t in types))


def _textual(declared: str) -> bool:
    family, _, name = declared.partition("/")
    return family == "text" or name in _TEXTUAL or name.endswith(("+json", "+xml", "+yaml"))


def _has_signature(declared: str) -> bool:
    """Return whether every file of this type starts with a known signature."""
    return (
        declared in _KNOWN
        or declared.startswith(_OFFICE)
        or declared.partition("/")[0] in ("video", "image", "audio", "text")
    )


_KNOWN = frozenset(
    {name for _, _, name in _SIGNATURES} | {*_RIFF.values(), *_FTYP.values()}
    | {other for others in _ALSO.values() for other in others}
)  # fmt: skip
