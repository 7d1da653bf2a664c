"""Cron expressions: their times, and the errors of invalid ones."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.pipeline.run.schedule import NICKNAMES, read_cron
from tests.examples import examples

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = 60


def after(text: str, moment: str, zone: ZoneInfo | None = None) -> str:
    at = datetime.fromisoformat(moment)
    at = at if at.tzinfo is not None else at.replace(tzinfo=zone or UTC)
    found = read_cron(text).next(at.timestamp(), zone or UTC)
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
        ("", "Write five fields"),
        ("* * * *", "Write five fields"),
        ("0 0 2 * * *", "Write five fields"),  # cronsim would read six, with seconds
        ("60 * * * *", "'60' is not a valid minute. Use 0-59;"),
        ("* 24 * * *", "'24' is not a valid hour. Use 0-23;"),
        ("* * 0 * *", "'0' is not a valid day of the month. Use 1-31,"),
        ("* * * foo *", "'foo' is not a valid month. Use 1-12 or jan-dec;"),
        ("* * * * 8", "'8' is not a valid day of the week. Use 0-7 or sun-sat;"),
        ("5-1 * * * *", "'5-1' is not a valid minute"),
        ("*/0 * * * *", "'*/0' is not a valid minute"),
        ("*-5 * * * *", "'*-5' is not a valid minute"),
        ("1.5 * * * *", "'1.5' is not a valid minute"),
        (f"{'9' * 5000} * * * *", "is not a cron expression"),
        ("0 0 31 2 *", "'31' is not a valid day of the month. Use 1-31, a day that the month has"),
        ("@noon", "@daily"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        read_cron(text)


# --- when the clocks change


@pytest.mark.parametrize("text", ["15 2 * * *", "15,45 2 * * *", "*/15 2 * * *", "0 */2 * * *"])
def test_a_time_that_the_clocks_skip_runs_once_at_the_end_of_the_gap(text: str) -> None:
    assert after(text, "2026-03-29 01:00", BERLIN) == "2026-03-29 03:00 Sun"
    assert after(text, "2026-03-29 03:00", BERLIN) > "2026-03-29 03:59"


def test_a_gap_of_half_an_hour_or_at_midnight_is_a_gap() -> None:
    lord_howe, beirut = ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Asia/Beirut")
    assert after("10 2 * * *", "2026-10-03 12:00", lord_howe) == "2026-10-04 02:30 Sun"
    assert after("10 0 * * *", "2024-03-30 12:00", beirut) == "2024-03-31 01:00 Sun"


@pytest.mark.parametrize("text", ["30 2 * * *", "*/30 2 * * *"])
def test_a_time_that_comes_twice_is_run_the_first_time(text: str) -> None:
    cron = read_cron(text)
    first = cron.next(datetime(2026, 10, 25, 2, 15, tzinfo=BERLIN).timestamp(), BERLIN)
    again = datetime(2026, 10, 25, 2, 15, fold=1, tzinfo=BERLIN).timestamp()
    tomorrow = cron.next(datetime(2026, 10, 25, 12, tzinfo=BERLIN).timestamp(), BERLIN)
    assert first == again - 45 * 60
    assert cron.next(first, BERLIN) == cron.next(again, BERLIN) == tomorrow


@pytest.mark.parametrize("day", ["2026-03-28 23:50", "2026-10-24 23:50"])
def test_every_quarter_is_every_quarter_on_any_day(day: str) -> None:
    cron = read_cron("*/15 * * * *")
    at = datetime.fromisoformat(day).replace(tzinfo=BERLIN).timestamp()
    moments = []
    for _ in range(20):
        following = cron.next(at, BERLIN)
        at = following
        moments.append(at)
    assert {b - a for a, b in pairwise(moments)} == {15 * 60.0}


# --- against the plain way


def piece(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    # Two different numbers: cronsim reads `5-5/2` as `5/2`.
    pair = st.lists(number, min_size=2, max_size=2, unique=True).map(sorted)
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


def numbers(field: str, low: int, high: int) -> set[int]:
    """The values of a field, by the definition alone."""
    found: set[int] = set()
    for part in field.split(","):
        bounds, _, step = part.partition("/")
        first, _, last = bounds.replace("*", f"{low}-{high}").partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def fits(text: str, at: datetime) -> bool:
    minute, hour, day, month, weekday = text.split()
    by_month = at.day in numbers(day, 1, 31)
    by_week = at.isoweekday() % 7 in {number % 7 for number in numbers(weekday, 0, 7)}
    both = day.startswith("*") or weekday.startswith("*")
    return (
        (by_month and by_week if both else by_month or by_week)
        and at.month in numbers(month, 1, 12)
        and at.hour in numbers(hour, 0, 23)
        and at.minute in numbers(minute, 0, 59)
    )


@examples(60)
@given(expressions, st.integers(1_700_000_000, 2_000_000_000))
def test_it_fits_and_nothing_before_does(text: str, start: int) -> None:
    found = read_cron(text).next(start)
    assert found > start
    assert fits(text, datetime.fromtimestamp(found, UTC))
    first = start // MINUTE * MINUTE + MINUTE
    looked = range(first, min(int(found), first + 86400), MINUTE)
    assert not any(fits(text, datetime.fromtimestamp(at, UTC)) for at in looked)


@given(st.text(max_size=30))
def test_no_text_does_any_harm(text: str) -> None:
    try:
        read_cron(text)
    except ValueError as error:
        assert str(error)


def test_the_nicknames_are_schedules() -> None:
    for name in NICKNAMES:
        read_cron(name)
