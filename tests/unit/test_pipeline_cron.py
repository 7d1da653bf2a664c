"""Cron expressions: what they mean, and what is wrong with those that mean nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.pipeline.run.cron import NICKNAMES, CronExpression, read_cron

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = 60


def after(text: str, moment: str, zone: ZoneInfo | None = None) -> str:
    at = datetime.fromisoformat(moment)
    at = at if at.tzinfo is not None else at.replace(tzinfo=zone or UTC)
    found = read_cron(text).next(at.timestamp(), zone or UTC)
    assert found is not None
    return datetime.fromtimestamp(found, zone or UTC).strftime("%Y-%m-%d %H:%M %a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15 2 * * *", "2026-11-17 02:15 Tue"),
        ("*/20 * * * *", "2026-11-16 12:40 Mon"),
        ("0 0 1 jan *", "2027-01-01 00:00 Fri"),
        ("30 6 * * mon-fri", "2026-11-17 06:30 Tue"),
        ("30 6 * * 7", "2026-11-22 06:30 Sun"),
        ("0 9 13 * FRI", "2026-11-20 09:00 Fri"),  # the 13th, or a Friday
        ("5,10-12 3 * * *", "2026-11-17 03:05 Tue"),
        ("0 12/6 * * *", "2026-11-16 18:00 Mon"),
        ("0 0 29 2 *", "2028-02-29 00:00 Tue"),
        ("0 0 */28 2 mon", "2027-02-01 00:00 Mon"),
        ("0 0 */29 feb sat", "2031-02-01 00:00 Sat"),
        ("@hourly", "2026-11-16 13:00 Mon"),
        ("@weekly", "2026-11-22 00:00 Sun"),
    ],
)
def test_the_next_moment(text: str, expected: str) -> None:
    assert after(text, "2026-11-16 12:30") == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "write minute"),
        ("* * * *", "write minute"),
        ("60 * * * *", "from 0 to 59"),
        ("* 24 * * *", "from 0 to 23"),
        ("* * 0 * *", "from 1 to 31"),
        ("* * * foo *", "from 1 to 12"),
        ("5-1 * * * *", "never"),
        ("*/0 * * * *", "never"),
        ("*-5 * * * *", "everything already"),
        ("1.5 * * * *", "minute"),
        ("0 0 31 2 *", "no such day"),
        ("@noon", "@daily"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_cron(text)


def test_a_day_that_comes_once_in_forty_years_is_found() -> None:
    rare = read_cron("0 0 29-29/1 2 *")
    monday = CronExpression(
        "", rare.minutes, rare.hours, rare.days, rare.months, frozenset((1,)), either=False
    )
    at = monday.next(datetime(2072, 3, 1, tzinfo=UTC).timestamp())
    assert at is not None and datetime.fromtimestamp(at, UTC).year == 2112


# --- when the clocks change


def test_a_time_that_the_clocks_leave_out_is_run_later() -> None:
    assert after("15 2 * * *", "2026-03-28 12:00", BERLIN) == "2026-03-29 03:15 Sun"
    assert after("15 2 * * *", "2026-03-29 12:00", BERLIN) == "2026-03-30 02:15 Mon"


def test_a_time_that_comes_twice_is_run_once() -> None:
    first = read_cron("30 2 * * *").next(datetime(2026, 10, 24, 12, tzinfo=BERLIN).timestamp(), BERLIN)
    assert first is not None
    second = read_cron("30 2 * * *").next(first, BERLIN)
    assert second is not None and second - first == 25 * 3600


@pytest.mark.parametrize("day", ["2026-03-28 23:50", "2026-10-24 23:50"])
def test_every_quarter_is_every_quarter_on_any_day(day: str) -> None:
    cron = read_cron("*/15 * * * *")
    at = datetime.fromisoformat(day).replace(tzinfo=BERLIN).timestamp()
    moments = []
    for _ in range(20):
        following = cron.next(at, BERLIN)
        assert following is not None
        at = following
        moments.append(at)
    assert {b - a for a, b in pairwise(moments)} == {15 * 60.0}


# --- against the plain way


def piece(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    return st.one_of(
        st.just("*"),
        number.map(str),
        pair.map(lambda p: f"{p[0]}-{p[1]}"),
        st.integers(1, 30).map(lambda n: f"*/{n}"),
        st.tuples(pair, st.integers(1, 9)).map(lambda t: f"{t[0][0]}-{t[0][1]}/{t[1]}"),
        st.lists(number, min_size=1, max_size=4).map(lambda ns: ",".join(map(str, ns))),
    )


expressions = st.tuples(
    piece(0, 59), piece(0, 23), piece(1, 28), piece(1, 12), piece(0, 7)
).map(" ".join)  # fmt: skip


def fits(cron: CronExpression, at: datetime) -> bool:
    """By the definition alone."""
    by_month, by_week = at.day in cron.days, at.isoweekday() % 7 in cron.weekdays
    day = by_month or by_week if cron.either else by_month and by_week
    return day and at.month in cron.months and at.hour in cron.hours and at.minute in cron.minutes


@settings(max_examples=150, deadline=None)
@given(expressions, st.integers(1_700_000_000, 2_000_000_000))
def test_it_fits_and_nothing_before_does(text: str, start: int) -> None:
    cron = read_cron(text)
    found = cron.next(start)
    assert found is not None and found > start
    assert fits(cron, datetime.fromtimestamp(found, UTC))
    first = start // MINUTE * MINUTE + MINUTE
    looked = range(first, min(int(found), first + 3 * 86400), MINUTE)
    assert not any(fits(cron, datetime.fromtimestamp(at, UTC)) for at in looked)


@given(st.text(max_size=30))
def test_no_text_does_any_harm(text: str) -> None:
    try:
        read_cron(text)
    except ValueError as error:
        assert str(error)


def test_the_nicknames_are_schedules() -> None:
    for name in NICKNAMES:
        read_cron(name)
