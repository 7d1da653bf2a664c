"""bide.js and the Python client read the same limits from the same headers."""

from __future__ import annotations

import json
from email.utils import formatdate

import pytest

from bide.core.pacing.limits import read_limits, read_pause
from tests.node import run_node

NOW = 1_900_000_000
DATE = formatdate(NOW, usegmt=True)
LATER = formatdate(NOW + 90, usegmt=True)
HEADERS: list[dict[str, str]] = [
    {},
    {"retry-after": "7"},
    {"retry-after": "0.5"},
    {"retry-after": LATER, "date": DATE},
    {"retry-after": "soon"},
    {"retry-after": "-1"},
    {"retry-after": ""},
    {"retry-after-ms": "1500", "retry-after": "9"},
    {"x-ms-retry-after-ms": "250"},
    {"ratelimit": '"default";r=50;t=30', "ratelimit-policy": '"default";q=100;w=60'},
    {
        "ratelimit": '"a";r=5;t=1, "b";r=900;t=3000',
        "ratelimit-policy": '"a";q=10;w=1, "b";q=1000;w=3600',
    },
    {"ratelimit": '"with;semi,colon";r=3;t=2', "ratelimit-policy": '"with;semi,colon";q=4;w=2'},
    {"ratelimit": "limit=100, remaining=50, reset=30", "ratelimit-policy": "100;w=60"},
    {"ratelimit-policy": '"burst";q=10;w=1, "day";q=1000;w=86400'},
    {"ratelimit-policy": '"bytes";q=1000;w=60;qu="content-bytes"'},
    {"ratelimit-limit": "60", "ratelimit-remaining": "59", "ratelimit-reset": "12"},
    {"ratelimit-limit": "60, 60;w=60", "ratelimit-remaining": "5", "ratelimit-reset": "12"},
    {
        "x-ratelimit-limit": "100",
        "x-ratelimit-remaining": "7",
        "x-ratelimit-reset": str(NOW + 40),
        "date": DATE,
    },
    {"x-ratelimit-remaining": "7", "x-ratelimit-reset": str((NOW + 40) * 1000), "date": DATE},
    {"x-rate-limit-remaining": "0", "x-rate-limit-reset": LATER, "date": DATE},
    {"x-rate-limit-remaining": "699.5"},
    {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "6m0s",
    },
    {"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "250ms"},
    {"x-ratelimit-remaining": "-1"},
    {"x-ratelimit-remaining": "many"},
    {"ratelimit": ";;;,,,"},
    {"ratelimit": '"unclosed;r=1'},
]
SCRIPT = """
const read = (table) => {
  const headers = new Headers(table);
  const limits = bide.readLimits(headers).map(({ quota, window, remaining, reset }) =>
    [quota ?? null, window ?? null, remaining ?? null, reset ?? null]);
  return [bide.readRetryAfter(headers) ?? null, limits];
};
say(JSON.parse(args[0]).map(read));
"""


@pytest.fixture(scope="module")
def read_by_javascript() -> list[tuple[float | None, list[list[float | None]]]]:
    (found,) = run_node(SCRIPT, "", json.dumps(HEADERS))
    return [(pause, limits) for pause, limits in found]


@pytest.mark.parametrize("number", range(len(HEADERS)))
def test_both_clients_read_the_same(
    number: int, read_by_javascript: list[tuple[float | None, list[list[float | None]]]]
) -> None:
    headers = HEADERS[number]
    pause, limits = read_by_javascript[number]
    assert pause == read_pause(headers, NOW)
    expected = [[one.quota, one.window, one.remaining, one.reset] for one in read_limits(headers, NOW)]
    if "ratelimit-policy" in headers and "ratelimit" not in headers:
        # bide.js keeps all policies, Python the one with the shortest window.
        assert expected == [] or expected[0] in limits
    else:
        assert limits == expected, headers
