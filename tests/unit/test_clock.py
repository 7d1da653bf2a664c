"""Instants on the wire, and the clocks."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bide.core.clock import Clock, SystemClock, read_instant, render_instant
from bide.testing import ManualClock

LAST_SECOND = 253402300799.0  # of the year 9999


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2030-01-31T12:00:00Z", 1896091200.0),
        ("2030-01-31t12:00:00.25z", 1896091200.25),
        ("2030-01-31T14:00:00+02:00", 1896091200.0),
        ("2030-01-31T11:30:00-00:30", 1896091200.0),
    ],
)
def test_an_instant_is_read_with_its_offset(text: str, at: float) -> None:
    assert read_instant(text) == at


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2030-01-31",
        "2030-01-31T12:00:00",
        "20300131T120000Z",
        "2030-W05-4T12:00:00Z",
        "2030-01-31T12Z",
        "2030-02-30T12:00:00Z",
        "2030-01-31T25:00:00Z",
        "2030-01-31T12:00:00Z\n",
        "2030-01-31T12:00:00+99:00",
        "٢٠٣٠-01-31T12:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_what_is_not_rfc_3339_with_an_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_instant(text)


def test_a_missing_offset_is_reported_with_an_example() -> None:
    with pytest.raises(ValueError, match=r"offset is missing.*Z"):
        read_instant("2030-01-31T12:00:00")


@given(st.floats(0, LAST_SECOND))
def test_what_is_rendered_is_read_again_to_the_millisecond(at: float) -> None:
    text = render_instant(at)
    assert text.endswith("Z")
    assert abs(read_instant(text) - at) <= 0.0011


@given(st.text() | st.datetimes().map(lambda d: d.isoformat() + "Z"))
@example("9999-12-31T23:59:59.999999Z")
@example("0001-01-01T00:00:00Z")
def test_what_was_read_can_be_rendered(text: str) -> None:
    try:
        at = read_instant(text)
    except ValueError:
        return
    assert abs(read_instant(render_instant(at)) - at) <= 0.0011


def test_the_systems_clock_is_the_wall_clock_and_goes_on() -> None:
    clock = SystemClock()
    first = clock.now()
    assert abs(first - time.time()) < 5
    assert clock.now() >= first


def test_a_step_of_the_wall_clock_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= clock.now() - before < 5


def test_a_manual_clock_moves_only_when_it_is_moved_and_never_back() -> None:
    manual = ManualClock(100.0)
    clock: Clock = manual
    assert clock.now() == clock.now() == 100.0
    assert manual.advance(2.5) == clock.now() == 102.5
    manual.set(200.0)
    assert clock.now() == 200.0
    for back in (199.0, float("nan")):
        with pytest.raises(ValueError, match="never goes back"):
            manual.set(back)
    with pytest.raises(ValueError, match="never goes back"):
        manual.advance(-1)
    assert clock.now() == 200.0
