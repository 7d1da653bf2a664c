"""Every form of rate-limit headers, and headers that only look like one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing.limits import (
    LIMIT_HEADERS,
    AdvertisedLimit,
    limit_headers,
    read_cost,
    read_limits,
    read_pause,
    read_reset,
)

WALL = 1_900_000_000.0  # Sun, 17 Mar 2030 17:46:40 GMT


def limits(**headers: str) -> list[AdvertisedLimit]:
    told = limit_headers({name.replace("_", "-"): value for name, value in headers.items()})
    return read_limits(told or {}, WALL)


def pause(**headers: str) -> float | None:
    told = limit_headers({name.replace("_", "-"): value for name, value in headers.items()})
    return read_pause(told or {}, WALL)


def test_structured_fields() -> None:
    assert limits(RateLimit='"default";r=50;t=30', RateLimit_Policy='"default";q=100;w=60') == [
        AdvertisedLimit("default", 100, 60, 50, 30, coarse=True)
    ]


def test_several_policies_each_with_its_own_state() -> None:
    found = limits(
        RateLimit='"burst";r=4;t=1, "daily";r=900;t=5000',
        RateLimit_Policy='"burst";q=10;w=1, "daily";q=1000;w=86400;pk=:YWJj:, "bytes";q=5;w=1;qu="content-bytes"',
    )
    assert found == [
        AdvertisedLimit("burst", 10, 1, 4, 1, coarse=True),
        AdvertisedLimit("daily", 1000, 86400, 900, 5000, coarse=True),
    ]


def test_a_state_without_a_reset_or_without_a_policy() -> None:
    assert limits(RateLimit='"a";r=7') == [AdvertisedLimit("a", None, None, 7)]


def test_commas_and_semicolons_inside_of_quotes() -> None:
    assert limits(RateLimit='"a,b;c";r=7;t=1.5') == [AdvertisedLimit("a,b;c", None, None, 7, 1.5)]


def test_a_policy_alone_gives_its_shortest_window() -> None:
    assert limits(RateLimit_Policy='"d";q=1000;w=86400, "m";q=60;w=60') == [AdvertisedLimit("m", 60, 60)]


def test_the_earlier_drafts() -> None:
    assert limits(RateLimit="limit=100, remaining=50, reset=30", RateLimit_Policy="100;w=60") == [
        AdvertisedLimit("default", 100, 60, 50, 30, coarse=True)
    ]
    found = limits(
        RateLimit_Limit='100, 100;w=60;comment="x, y"', RateLimit_Remaining="3", RateLimit_Reset="9"
    )
    assert found == [AdvertisedLimit("ratelimit-remaining", 100, 60, 3, 9, coarse=True)]


def test_the_x_families() -> None:
    (seen,) = limits(X_RateLimit_Limit="60", X_RateLimit_Remaining="59", X_RateLimit_Reset="30")
    assert seen == AdvertisedLimit("x-ratelimit-remaining", 60, None, 59, 30, coarse=True, vague=True)
    (seen,) = limits(X_Rate_Limit_Limit="60", X_Rate_Limit_Remaining="59", X_Rate_Limit_Reset="30.5")
    assert seen == AdvertisedLimit("x-rate-limit-remaining", 60, None, 59, 30.5, vague=True)
    (seen,) = limits(X_RateLimit_Remaining_Requests="59", X_RateLimit_Reset_Requests="6m0.5s")
    assert (seen.remaining, seen.reset) == (59, 360.5)
    (seen,) = limits(
        anthropic_ratelimit_requests_remaining="5",
        anthropic_ratelimit_requests_reset="2030-03-17T17:47:40Z",
    )
    assert (seen.remaining, seen.reset) == (5, 60)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("1900000030", 30.0),
        ("1900000030500", 30.5),
        ("Sun, 17 Mar 2030 17:47:10 GMT", 30.0),
        ("2030-03-17T17:47:10+00:00", 30.0),
        ("20ms", 0.02),
        ("1h30m", 5400.0),
        ("1800000000", 0.0),
        ("86400000", 86400.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("nan", None),
    ],
)
def test_a_reset_in_every_form(text: str, seconds: float | None) -> None:
    assert read_reset(text, WALL)[0] == (None if seconds is None else pytest.approx(seconds))


def test_instants_are_read_against_the_servers_own_clock() -> None:
    an_hour_off = "Sun, 17 Mar 2030 18:46:40 GMT"
    assert pause(Retry_After="Sun, 17 Mar 2030 18:47:40 GMT", Date=an_hour_off) == 60
    (seen,) = limits(X_RateLimit_Remaining="1", X_RateLimit_Reset="1900003630", Date=an_hour_off)
    assert seen.reset == 30


def test_a_pause_in_every_form() -> None:
    assert pause(Retry_After="120") == 120
    assert pause(Retry_After="1.5") == 1.5
    assert pause(retry_after_ms="1500", Retry_After="2") == 1.5
    assert pause(x_ms_retry_after_ms="250") == 0.25
    assert pause(Retry_After="Sun, 17 Mar 2030 17:46:00 GMT") == 0
    assert pause(Retry_After="2030-03-17T17:46:50Z") == 10
    for nonsense in ("", "-1", "soon", "inf", "9" * 400, "Sun, 99 Mar 2030 17:46:00 GMT"):
        assert pause(Retry_After=nonsense) is None


def test_the_cost_of_a_request() -> None:
    told = limit_headers({"X-Request-Cost": "0.25", "X-Rate-Limit-Remaining": "699.5"}) or {}
    assert read_cost(told) == 0.25
    assert read_limits(told, WALL) == [AdvertisedLimit("x-rate-limit-remaining", None, None, 699.5)]
    assert read_cost({"x-request-cost": "-3"}) is None


def test_negative_and_endless_numbers_were_not_said() -> None:
    assert limits(X_RateLimit_Remaining="-1", X_RateLimit_Limit="-1") == []
    assert limits(X_RateLimit_Remaining="inf") == []
    assert limits(RateLimit='"a";r=-1;t=5') == []


def test_names_are_found_in_any_case_and_others_are_not() -> None:
    assert limit_headers({"RETRY-AFTER": "1"}) == {"retry-after": "1"}
    assert limit_headers({"Content-Type": "a", "Date": "b"}) is None


@given(
    st.dictionaries(
        st.sampled_from(sorted(LIMIT_HEADERS | {"date"})),
        st.one_of(
            st.text(),
            st.text('0123456789.-+eE"=;, rtqwTZ:', max_size=40),
            st.floats().map(str),
            st.integers().map(str),
            st.datetimes().map(str),
        ),
    ),
    st.floats(0, 1e11),
)
def test_nothing_raises_and_every_number_makes_sense(headers: dict[str, str], wall: float) -> None:
    told = limit_headers(headers)
    if told is None:
        return
    numbers = [read_pause(told, wall), read_cost(told)]
    for seen in read_limits(told, wall):
        numbers += [seen.quota, seen.window, seen.remaining, seen.reset]
        assert seen.quota is None or seen.quota > 0
        assert seen.window is None or seen.window > 0
    assert all(n is None or (math.isfinite(n) and n >= 0) for n in numbers)
