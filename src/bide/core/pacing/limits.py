"""Reads rate-limit headers of all common forms into one.

1. Nothing here raises: a header that cannot be read is ignored.
2. Negative and infinite numbers are ignored too: -1 means "unlimited" for some APIs and "exceeded" for others.
3. Instants are read relative to the response's Date, if it has one, so that a wrong clock on either side does no harm.
"""

from __future__ import annotations

import email.utils
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

WEEK = 7 * 86400.0
LONGEST_TEXT = 1000  # characters of a header that are read
LARGEST_NUMBER = 1e15  # a larger one is ignored


class AdvertisedLimit(NamedTuple):
    """One limit in the headers of a response; a field is None if the headers do not contain it."""

    name: str
    quota: float | None = None
    window: float | None = None
    remaining: float | None = None
    reset: float | None = None  # seconds after the response
    coarse: bool = False  # in whole seconds: the reset may be up to one second later
    vague: bool = False  # a bare number, in seconds or milliseconds


# (limit, remaining, reset), in the order of trust
_FAMILIES = (
    ("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset"),
    ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    (
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ),
)
_PAUSES = ("retry-after-ms", "x-ms-retry-after-ms", "retry-after")
LIMIT_HEADERS = frozenset(
    ("ratelimit", "ratelimit-policy", "x-request-cost", *_PAUSES, *(n for f in _FAMILIES for n in f))
)


def limit_headers(headers: Mapping[str, str]) -> dict[str, str] | None:
    """Return the headers about limits, with lower-case names; None if there are none."""
    found = None
    for name in headers:
        if (lower := name.lower()) in LIMIT_HEADERS:
            found = found or {}
            found[lower] = headers[name][:LONGEST_TEXT]
    if found is not None:
        date = headers.get("Date") or headers.get("date")
        if date:
            found["date"] = date[:LONGEST_TEXT]
    return found


def read_pause(headers: Mapping[str, str], wall: float) -> float | None:
    """Return the seconds to wait, from any form of Retry-After."""
    for name in _PAUSES:
        text = headers.get(name)
        pause = None if text is None else read_retry_after(text, headers.get("date"), wall)
        if pause is not None:
            return pause / 1000 if name.endswith("-ms") else pause
    return None


def read_retry_after(text: str, date: str | None, wall: float | None = None) -> float | None:
    """Seconds, from a number or a date. A date is compared with the response's own `date`, else with `wall`."""
    text = text.strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        number = float(text)
        return number if number < LARGEST_NUMBER else None
    at = _instant(text)
    now = _instant(date) if date else None
    now = wall if now is None else now
    return None if at is None or now is None else max(0.0, at - now)


def read_cost(headers: Mapping[str, str]) -> float | None:
    """Return the cost of the request, where requests differ in cost."""
    cost = read_number(headers.get("x-request-cost", ""))
    return cost or None


def read_limits(headers: Mapping[str, str], wall: float) -> list[AdvertisedLimit]:
    """Return every advertised limit; structured fields outrank the older header families."""
    fields = _read_fields(headers)
    if fields:
        return fields
    for family in _FAMILIES:
        if family[1] in headers and (seen := _read_family(family, headers, wall)) is not None:
            return [seen]
    return []


def _read_fields(headers: Mapping[str, str]) -> list[AdvertisedLimit]:
    state, policy = headers.get("ratelimit"), headers.get("ratelimit-policy")
    if state is None and policy is None:
        return []
    policies = _read_policies(policy or "")
    found = []
    for name, params in _items(state or ""):
        quota, window = policies.get(name) or (
            next(iter(policies.values())) if len(policies) == 1 else (None, None)
        )
        remaining, reset = read_number(params.get("r", "")), read_number(params.get("t", ""))
        if remaining is not None:
            whole = "." not in params.get("t", "")
            found.append(
                AdvertisedLimit(name, quota, window, remaining, reset, whole and reset is not None)
            )
    if not found and state:
        found = _read_dictionary(state, policies)
    if not found and state is None and policies:
        # There is only the policy: a steady pace must fit its shortest window.
        name, (quota, window) = min(policies.items(), key=lambda p: p[1][1] or WEEK)
        found = (
            [AdvertisedLimit(name, quota, window)]
            if window and "ratelimit-remaining" not in headers
            else []
        )
    return found


def _read_dictionary(
    state: str, policies: Mapping[str, tuple[float | None, float | None]]
) -> list[AdvertisedLimit]:
    """Read the form of an earlier draft: `limit=100, remaining=50, reset=30`."""
    parts = {key.lower(): read_number(value) for key, value in _PAIR.findall(state)}
    remaining, quota, reset = parts.get("remaining"), parts.get("limit"), parts.get("reset")
    if remaining is None:
        return []
    window = next((w for q, w in policies.values() if q == quota), None)
    return [AdvertisedLimit("default", quota, window, remaining, reset, reset is not None)]


@lru_cache(maxsize=64)
def _read_policies(text: str) -> dict[str, tuple[float | None, float | None]]:
    """Return quota and window by name. Policies that count bytes or open requests are ignored."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for name, params in _items(text):
        if params.get("qu", "requests") != "requests":
            continue
        quota = read_number(params.get("q", name))
        window = read_number(params.get("w", ""))
        if quota:
            found[name if "q" in params else "default"] = (quota, window or None)
    return found


def _read_family(
    family: tuple[str, str, str], headers: Mapping[str, str], wall: float
) -> AdvertisedLimit | None:
    limit, remaining, reset = (headers.get(name) for name in family)
    left = read_number(remaining or "")
    if left is None:
        return None
    quota = window = None
    for name, params in _items(limit or ""):
        number = read_number(name)
        quota = number if quota is None else quota
        if number == quota:
            window = window or read_number(params.get("w") or params.get("window") or "")
    if window is None:
        window = next((w for q, w in _read_policies(headers.get("ratelimit-policy", "")).values()), None)
    until, whole, vague = read_reset(reset or "", _server_time(headers, wall) if reset else wall)
    vague = vague and family is not _FAMILIES[0]
    return AdvertisedLimit(family[1], quota or None, window or None, left, until, whole, vague)


def read_reset(text: str, wall: float) -> tuple[float | None, bool, bool]:
    """Read a delta, an epoch, a date or `6m0s`: (seconds from now, in whole seconds, may be milliseconds)."""
    text = text.strip()
    number = read_number(text)
    if number is None:
        instant = _instant(text)
        if instant is not None:
            return max(0.0, instant - wall), "." not in text, False
        return _duration(text), False, False
    whole = "." not in text
    if number > 1e11:
        return max(0.0, number / 1000 - wall), False, False
    if number > 1e9:
        return max(0.0, number - wall), whole, False
    if number > WEEK:
        return number / 1000, False, False
    return number, whole, True


def read_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < LARGEST_NUMBER else None


def _duration(text: str) -> float | None:
    if not text or not _DURATION.fullmatch(text):
        return None
    total = sum(float(n) * _UNITS[unit] for n, unit in _PIECE.findall(text))
    return total if math.isfinite(total) else None


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PIECE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PIECE.pattern.replace('(ms', '(?:ms').replace('([', '(?:[')})+")
_PAIR = re.compile(r"([A-Za-z]{1,20})\s{0,3}=\s{0,3}([0-9.]{1,20})")


def _server_time(headers: Mapping[str, str], wall: float) -> float:
    return _instant(headers.get("date", "")) or wall


@lru_cache(maxsize=64)
def _instant(text: str) -> float | None:
    """Return the seconds since the epoch of an HTTP date or an RFC 3339 instant."""
    text = text.strip()
    if len(text) < 10:
        return None
    try:
        at = (
            datetime.fromisoformat(text)
            if text[:4].isdigit()
            else email.utils.parsedate_to_datetime(text)
        )
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError, OSError):
        return None


@lru_cache(maxsize=512)  # most responses have the same few texts
def _items(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return structured-field items with their parameters, ignoring what cannot be read."""
    found = []
    for item in _split(text, ","):
        name, *rest = _split(item, ";")
        pairs = (part.partition("=") for part in rest)
        params = {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}
        if name.strip():
            found.append((name.strip().strip('"'), params))
    return found


def _split(text: str, mark: str) -> list[str]:
    """Split at each mark outside quotes."""
    if '"' not in text:
        return text.split(mark)
    parts, start, quoted = [], 0, False
    for i, char in enumerate(text):
        if char == '"' and text[i - 1 : i] != "\\":
            quoted = not quoted
        elif char == mark and not quoted:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return parts
