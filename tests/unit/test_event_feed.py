"""The event stream of a poller: when it is opened again, and when the jobs are polled instead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest

from bide.client.http.sender import Sender
from bide.client.polling.event_feed import LASTING, LONGEST_PAUSE, PAUSE, EventFeed
from bide.client.timing import Timing
from bide.core.errors import ServiceError
from tests.waiting import eventually

DAY = 86400.0


class VirtualTime(Timing):
    """Time passes only when something sleeps, up to one day."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 100.0
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.sleeps.append(seconds)
            self.time += seconds
        await (asyncio.sleep(0) if self.time < DAY else asyncio.Event().wait())


class Stream:
    """A stream that is cut after this many seconds."""

    def __init__(self, timing: VirtualTime, lasts: float) -> None:
        self._timing = timing
        self._lasts = lasts

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield b":\n\n"
        self._timing.time += self._lasts

    def close(self) -> None:
        pass


class Far:
    """A service whose answers the test decides: the seconds for which a stream lasts, or an error. The last one stays."""

    def __init__(self, timing: VirtualTime, *answers: float | Exception) -> None:
        self._timing = timing
        self._answers = list(answers)
        self.opened: list[float] = []

    async def open(self, call: Any) -> Stream:
        self.opened.append(self._timing.time)
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Stream(self._timing, answer)


async def follow(far: Far, timing: VirtualTime, enough: Callable[[], bool]) -> tuple[EventFeed, int]:
    polls = 0

    def poll() -> None:
        nonlocal polls
        polls += 1

    feed = EventFeed(
        "http://far/events", cast(Sender, far), timing, random.Random(1),
        on_event=lambda *_: None, on_connected=poll, on_disconnected=poll,
    )  # fmt: skip
    feed.follow("a", progress=False)
    await eventually(enough)
    await feed.close()
    return feed, polls


async def test_a_proxy_that_cuts_streams_is_rarely_tried() -> None:
    timing = VirtualTime()
    far = Far(timing, 1.0)
    feed, polls = await follow(far, timing, lambda: timing.time >= DAY)
    first, *later = timing.sleeps
    assert first <= 2.0
    assert all(pause >= PAUSE / 2 for pause in later)
    assert max(later) > LONGEST_PAUSE / 2
    assert polls < 100  # each connection costs two polls of all jobs
    assert not feed.unusable


async def test_a_service_that_returns_is_followed_again() -> None:
    timing = VirtualTime()
    refused = OSError("refused")
    far = Far(timing, LASTING * 10, refused, refused, LASTING * 10, 1.0)
    await follow(far, timing, lambda: len(far.opened) >= 5)
    pauses = timing.sleeps[:4]
    # The streams that lasted are opened again soon, and those that failed later and later.
    assert pauses[0] <= 2.0 and pauses[3] <= 2.0
    assert PAUSE / 2 <= pauses[1] <= PAUSE <= pauses[2] <= 2 * PAUSE


@pytest.mark.parametrize("status", [404, 406])
async def test_a_service_without_events_is_asked_once(status: int) -> None:
    timing = VirtualTime()
    far = Far(timing, ServiceError(status, {}))
    feed, _ = await follow(far, timing, lambda: bool(far.opened))
    assert feed.unusable
    feed.follow("b", progress=False)
    await asyncio.sleep(0)
    assert len(far.opened) == 1
