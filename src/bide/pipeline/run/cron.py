"""Cron expressions: five fields, and the next moment that fits them in a time zone. Pure.

`*`, numbers, names (`mon`, `jan`), ranges, lists and steps; 7 is Sunday too; @hourly, @daily, @weekly, @monthly, @yearly.

1. A day fits when the day of the month or the day of the week does, if both are restricted; else when both do.
2. When the clocks go forward, a time that is left out is run as much later as they were put; when they go back, a time
   that comes twice is run the first time. An expression for every hour follows real hours instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(r"(?P<first>\*|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\d{1,4}))?", re.ASCII)
FARTHEST = 366 * 41  # days: 29 February on a given day of the week, over a century without one


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    offset: int = 0  # of the first name

    def number(self, text: str) -> int:
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.offset
        if not (text.isascii() and text.isdigit()) or not self.low <= int(text) <= self.high:
            raise ValueError(f"{text!r} is no {self.name}: it goes from {self.low} to {self.high}")
        return int(text)

    def read(self, text: str) -> frozenset[int]:
        found: set[int] = set()
        for part in text.split(","):
            match = _PART.fullmatch(part)
            if match is None:
                raise ValueError(f"{part!r} is no {self.name}: write *, 5, 1-5, 1,3 or */15")
            found.update(self._range(part, match))
        return frozenset(found)

    def _range(self, part: str, match: re.Match[str]) -> range:
        step = int(match["step"]) if match["step"] else 1
        if match["first"] == "*":
            first, last = self.low, self.high
            if match["last"]:
                raise ValueError(f"{part!r} is no {self.name}: * is everything already")
        else:
            first = self.number(match["first"])
            last = self.number(match["last"]) if match["last"] else self.high if match["step"] else first
        if first > last or not step:
            raise ValueError(f"{part!r} is no {self.name}: it would never be")
        return range(first, last + 1, step)


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("day of the week", 0, 7, _DAYS),
)


@dataclass(frozen=True)
class CronExpression:
    """A schedule. Made by `read_cron`."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    either: bool  # one of the two kinds of day is enough

    def next(self, after: float, zone: tzinfo = UTC) -> float | None:
        """The first moment after `after`, both in epoch seconds; None when there is none within years."""
        here = datetime.fromtimestamp(after, zone).date() - timedelta(days=1)
        for number in range(FARTHEST):
            day = here + timedelta(days=number)
            if self._fits(day):
                later = [at for at in self._moments(day, zone) if at > after]
                if later:
                    return min(later)
        return None

    def _fits(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either else by_month and by_week

    def _moments(self, day: date, zone: tzinfo) -> Iterator[float]:
        every_hour = len(self.hours) == 24
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                local = datetime.combine(day, time(hour, minute), zone)
                at = local.timestamp()
                there = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
                if every_hour and there != local.replace(tzinfo=None):
                    continue  # the clocks went over it
                yield at
                if every_hour and local.replace(fold=1).timestamp() > at:
                    yield local.replace(fold=1).timestamp()


def read_cron(text: str) -> CronExpression:
    """ValueError says what is wrong."""
    written = NICKNAMES.get(text.strip().lower(), text)
    fields = written.split()
    if len(fields) != 5:
        names = ", ".join(NICKNAMES)
        raise ValueError(
            f"{text!r} is no schedule: write minute, hour, day, month and day of the week, '15 2 * * *', or {names}"
        )
    minutes, hours, days, months, weekdays = (
        field.read(told) for field, told in zip(_FIELDS, fields, strict=True)
    )
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    cron = CronExpression(
        text, minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either
    )
    if cron.next(0.0) is None:
        raise ValueError(f"{text!r} is no schedule: there is no such day")
    return cron
