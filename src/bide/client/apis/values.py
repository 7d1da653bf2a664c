"""Converts values in the answers of any API. No function raises: a value that cannot be converted is None."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from bide.client.terminal_text import harmless
from bide.core.pacing.limits import read_retry_after

LONGEST_TEXT = 4000  # characters of a message that is shown
LONGEST_QUOTE = 200  # characters of an answer without a message
_MILLISECONDS = 1e11  # an epoch beyond this (the year 5138) is in milliseconds
_LATEST = 253402300799.0
_LARGE = 1 << 63
_USER = re.compile(r"^((?:[A-Za-z][\w+.-]*:)?//)[^/]*@")
_AFTER_PATH = re.compile("[?#]")


def header(headers: Mapping[str, str], name: str) -> str | None:
    """Ignore case in a dict; every other mapping must do so itself."""
    found = headers.get(name)
    if found is None and type(headers) is dict:
        wanted = name.lower()
        return next((headers[key] for key in headers if key.lower() == wanted), None)
    return found


def number(value: Any) -> float | None:
    """A finite number, from a number or from text such as `45`, `45.5` or `45 %`."""
    kind = type(value)
    if kind is float:
        return value if value - value == 0.0 else None
    if kind is int and -_LARGE < value < _LARGE:
        return float(value)
    if kind is str:
        value = value.strip().removesuffix("%")
        if not value.isascii():
            return None
    elif kind is not int:
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if found - found == 0.0 else None  # infinity minus infinity is NaN


def share(value: Any, scale: float) -> float | None:
    """Progress from 0 to 1; text with a percent sign is always in percent."""
    if type(value) is str and value.rstrip().endswith("%"):
        scale = 100.0
    found = number(value)
    if found is None:
        return None
    found /= scale
    return 0.0 if found < 0.0 else 1.0 if found > 1.0 else found


def count(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and found >= 0 else None


def text(value: Any) -> str | None:
    """Text to show, from text or a number."""
    kind = type(value)
    if kind is str:
        return value[:LONGEST_TEXT] or None
    if kind is int or kind is float:
        return str(value)
    return None


def quoted(body: bytes | str) -> str:
    """The beginning of an answer for an error message, in one line."""
    text = body[: 8 * LONGEST_QUOTE].decode("utf-8", "replace") if isinstance(body, bytes) else body
    line = harmless(" ".join(text.split()))
    return f'"{line}"' if len(line) <= LONGEST_QUOTE else f'"{line[:LONGEST_QUOTE]}…"'


def word(value: Any) -> str | None:
    """A status word: text, a number, or true and false."""
    kind = type(value)
    if kind is str:
        return value or None
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is float:
        return str(value)
    return None


def instant(value: Any) -> float | None:
    """Epoch seconds, from RFC 3339, an HTTP date, or epoch seconds or milliseconds. Without an offset: UTC."""
    kind = type(value)
    if kind is str and len(value) <= 64:
        try:
            return _epoch(datetime.fromisoformat(value))
        except ValueError:
            return _other_instant(value)
    found = number(value) if kind is not str else None
    if found is None or found <= 0:
        return None
    found = found / 1000 if found > _MILLISECONDS else found
    return found if found <= _LATEST else None


def _other_instant(value: str) -> float | None:
    found = number(value)
    if found is not None:
        return instant(found)
    try:
        return _epoch(email.utils.parsedate_to_datetime(value))
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _epoch(at: datetime) -> float | None:
    try:
        found = at.timestamp() if at.tzinfo is not None else at.replace(tzinfo=UTC).timestamp()
    except (OverflowError, ValueError):
        return None
    return found if found > 0 else None


def seconds(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and found >= 0 else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of the Retry-After header; a date in it is compared with the answer's own Date."""
    value = header(headers, "Retry-After")
    return None if value is None else read_retry_after(value, header(headers, "Date"))


def absolute(base: str | None, url: Any) -> str | None:
    """An absolute http or https URL; None for any other value."""
    if type(url) is not str or not url or not url.isprintable() or " " in url:
        return None
    try:
        found = urljoin(base, url) if base else url
        parts = urlsplit(found)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        return None
    return found if usable else None


def origin(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None if the URL has none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)


def with_parameter(url: str, name: str, value: str) -> str:
    """The URL with this query parameter, which replaces an earlier value."""
    parts = urlsplit(url)
    query = [(k, v) for k, v in parse_qsl(parts.query, keep_blank_values=True) if k != name]
    return parts._replace(query=urlencode([*query, (name, value)])).geturl()


def without_credentials(url: str) -> str:
    """Return the URL without user, password, query and fragment, because each may be secret. Never raise."""
    if "@" not in url and "?" not in url and "#" not in url:
        return url
    return _AFTER_PATH.split(_USER.sub(r"\1", url), maxsplit=1)[0]
