"""Detects the media type of a file from its first bytes, and checks it against the types that a handler accepts.

Only formats with a signature are detected; other files are text or unknown. The signature outranks the declared type.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

HEAD = 512  # bytes that `detect` needs
TEXT = "text/plain"

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
    "application/zip": frozenset({"application/x-zip-compressed", "application/epub+zip"}),
    "application/x-ole-storage": frozenset({"application/msword", "application/vnd.ms-excel"}),
}
_IN_ZIP = ("application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument.")
_TEXTUAL = ("json", "xml", "javascript", "yaml", "toml", "csv", "x-ndjson", "sql")


def detect(head: bytes) -> str:
    """Return the type of a file by its first bytes: TEXT for text, "" if it is unknown."""
    if head[:4] == b"RIFF" and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head[4:8] == b"ftyp":
        return _FTYP.get(head[8:12], "video/mp4")
    if head[:1] == b"G" and len(head) > 376 and head[188] == head[376] == 0x47:
        return "video/mp2t"
    for offset, signature, name in _SIGNATURES:
        if head.startswith(signature, offset):
            return name
    if head.lstrip()[:14].lower().startswith(_MARKUP):
        return "text/html"
    return TEXT if _is_text(head) else ""


def _is_text(head: bytes) -> bool:
    if not head or any(byte < 9 or 13 < byte < 27 for byte in head):
        return False
    try:
        # The last character may be incomplete.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
    except UnicodeDecodeError:
        return False
    return True


def is_one_of(declared: str, detected: str, types: Sequence[str]) -> bool:
    """Return whether a file has one of these types, which may end in `/*`."""
    declared = declared.partition(";")[0].strip().lower()
    if detected == TEXT:
        return _matches(TEXT, types) or (_textual(declared) and _matches(declared, types))
    if detected:
        if _matches(detected, types) or any(_matches(name, types) for name in _ALSO.get(detected, ())):
            return True
        return (
            detected == "application/zip" and declared.startswith(_IN_ZIP) and _matches(declared, types)
        )
    # Without a signature the declared type counts, unless files of that type have a signature.
    return _matches(declared, types) and not _has_signature(declared)


def _matches(name: str, types: Sequence[str]) -> bool:
    family = name.partition("/")[0] + "/*"
    return any(wanted in (name, family, "*/*") for wanted in (t.lower() for t in types))


def _textual(declared: str) -> bool:
    family, _, name = declared.partition("/")
    return family == "text" or name in _TEXTUAL or name.endswith(("+json", "+xml", "+yaml"))


def _has_signature(declared: str) -> bool:
    """Return whether every file of this type starts with a known signature."""
    return declared in _KNOWN or declared.partition("/")[0] in ("video", "image", "audio", "text")


_KNOWN = frozenset(
    {name for _, _, name in _SIGNATURES} | {*_RIFF.values(), *_FTYP.values()}
    | {other for others in _ALSO.values() for other in others}
)  # fmt: skip
