"""Subscriptions: every selected event once, in order, whenever a subscriber begins."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from bide.core.wire.events import ALL_TYPES, EventMessage
from bide.core.wire.http import Event
from bide.server.events import broadcaster as broadcasting
from bide.server.events.broadcaster import Broadcaster, EventSubscription
from bide.server.events.selection import EventSelection
from bide.server.store import EventFilter, LogPage
from tests.waiting import eventually

EPOCH = "e"


class FakeLog:
    """A log whose reads take some turns of the event loop."""

    def __init__(self, rng: random.Random) -> None:
        self.events: list[Event] = []
        self.reads = 0
        self._rng = rng

    async def read_log(self, filter: EventFilter) -> LogPage:
        self.reads += 1
        found = [
            event
            for event in self.events
            if filter.after < event.id <= (event.id if filter.until is None else filter.until)
            and (not filter.jobs or event.job_id in filter.jobs)
        ]
        last = self.events[-1].id if self.events else 0
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)
        return LogPage(EPOCH, 0, last, found[: filter.limit])


class World:
    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.log = FakeLog(self.rng)
        self.broadcaster = Broadcaster(cast(Any, self.log))
        self.broadcaster.on_log(EPOCH, 0, ())

    def commit(self, *facts: dict[str, Any], type_: str = "status") -> list[Event]:
        """Numbers have gaps, as after a rolled-back transaction."""
        number = self.broadcaster.last + self.rng.choice([0, 0, 3])
        events = []
        for known in facts:
            number += 1
            fields = {"kind": "work", "queue": "default", "status": "PENDING", "version": 1, **known}
            events.append(Event(number, fields.pop("job", "a"), cast(Any, type_), 0.0, fields))
        self.log.events += events
        self.broadcaster.on_log(EPOCH, number, events)
        return events

    def commit_some(self) -> None:
        self.commit(
            *(
                {
                    "job": self.rng.choice("abcd"),
                    "kind": self.rng.choice(["work", "play"]),
                    "queue": self.rng.choice(["one", "two"]),
                    "labels": {"of": self.rng.choice(["ann", "bob"])},
                }
                for _ in range(self.rng.randrange(1, 6))
            ),
            type_=self.rng.choice(["status", "log", "output"]),
        )


class Recorder:
    """A subscriber that keeps what it gets."""

    def __init__(
        self, world: World, selection: EventSelection, position: int = 0, *, batched: bool = False
    ) -> None:
        self.world = world
        self.heard: list[int] = []
        self.batches: list[int] = []
        self.progress: list[str] = []
        self.restarts = self.comments = self.stops = 0
        self.subscription: EventSubscription = world.broadcaster.subscribe(
            selection, self, batched=batched
        )
        self.selection = selection
        self.begun_at = position

    async def run(self) -> None:
        with self.subscription:
            self.subscription.begin(self.begun_at)
            async for messages in self.subscription.history():
                self.heard += [m.number for m in messages if m.type in self.selection.types]
                for _ in range(self.world.rng.randrange(3)):
                    await asyncio.sleep(0)
            await asyncio.Event().wait()

    def deliver(self, messages: Sequence[EventMessage]) -> None:
        self.heard += [
            m.number for m in messages if m.type in self.selection.types and not m.is_progress
        ]
        self.progress += [m.event.job_id for m in messages if m.is_progress]
        self.batches.append(len(messages))

    def keep_alive(self) -> None:
        self.comments += 1

    def restart(self) -> None:
        self.restarts += 1

    def stop(self) -> None:
        self.stops += 1

    @property
    def wanted(self) -> list[int]:
        return [
            event.id
            for event in self.world.log.events
            if event.id > self.begun_at
            and event.type in self.selection.types
            and self.selection.matches(event)
        ]


def some_selection(rng: random.Random) -> EventSelection:
    return rng.choice(
        [
            EventSelection(),
            EventSelection(jobs=frozenset("a")),
            EventSelection(jobs=frozenset("bc"), kinds=frozenset({"work"})),
            EventSelection(kinds=frozenset({"work", "play"}), types=frozenset({"log"})),
            EventSelection(queues=frozenset({"one"})),
            EventSelection(labels=frozenset({("of", "ann")}), types=ALL_TYPES - {"output"}),
            EventSelection(tenant="other"),
        ]
    )


@pytest.mark.parametrize("seed", range(20))
async def test_every_selected_event_arrives_once_and_in_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(seed)
    for name, value in (("PAGE", 7), ("NEAR", 20), ("MAX_WAITING", 12)):
        monkeypatch.setattr(broadcasting, name, value)
    recorders: list[Recorder] = []
    tasks: list[asyncio.Task[None]] = []
    for turn in range(200):
        world.commit_some()
        if turn % 10 == 0:
            position = world.rng.randrange(world.broadcaster.last + 1)
            batched = world.rng.random() < 0.5
            recorders.append(Recorder(world, some_selection(world.rng), position, batched=batched))
            tasks.append(asyncio.create_task(recorders[-1].run()))
        for _ in range(world.rng.randrange(6)):
            await asyncio.sleep(0)
    await eventually(lambda: all(len(r.heard) >= len(r.wanted) for r in recorders))
    for recorder in recorders:
        assert recorder.heard == recorder.wanted
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert world.broadcaster.subscriptions == 0
    assert not world.broadcaster.index


async def live(recorder: Recorder) -> asyncio.Task[None]:
    task = asyncio.create_task(recorder.run())
    for _ in range(20):
        await asyncio.sleep(0)
    return task


async def test_the_events_of_a_commit_arrive_together_and_without_a_read() -> None:
    world = World()
    recorder = Recorder(world, EventSelection())
    task = await live(recorder)
    reads = world.log.reads
    world.commit({}, {"job": "b"}, {})
    assert (recorder.batches, world.log.reads) == ([3], reads)
    task.cancel()


async def test_a_batched_subscription_gets_a_stream_of_commits_together() -> None:
    world = World()
    batched, other = (Recorder(world, EventSelection(), batched=b) for b in (True, False))
    tasks = [await live(batched), await live(other)]
    for _ in range(5):
        world.commit({})
    assert (batched.batches, other.batches) == ([1], [1] * 5)
    await eventually(lambda: batched.batches == [1, 4])
    assert batched.heard == other.heard == batched.wanted
    for task in tasks:
        task.cancel()


async def test_a_subscription_that_has_ended_reads_no_more_of_the_log() -> None:
    world = World()
    for _ in range(100):
        world.commit(*({} for _ in range(100)))
    recorder = Recorder(world, EventSelection(kinds=frozenset({"play"})))  # selects none of them
    task = asyncio.create_task(recorder.run())
    await eventually(lambda: world.log.reads >= 3)
    recorder.subscription.end()
    reads = world.log.reads
    for _ in range(100):
        await asyncio.sleep(0)
    assert world.log.reads <= reads + 1 < 100 * 100 / broadcasting.PAGE
    assert not world.broadcaster.index
    task.cancel()


async def test_a_subscriber_that_fails_does_not_affect_others() -> None:
    world = World()
    failing, working = Recorder(world, EventSelection()), Recorder(world, EventSelection())
    tasks = [await live(failing), await live(working)]
    failing.deliver = cast(Any, lambda messages: 1 / 0)  # type: ignore[method-assign]
    world.commit({})
    assert working.heard == working.wanted != []
    for task in tasks:
        task.cancel()


async def test_an_event_is_matched_only_with_the_subscribers_of_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    tasks = [await live(Recorder(world, EventSelection(jobs=frozenset({name})))) for name in "bcdefg"]
    tasks.append(await live(Recorder(world, EventSelection(kinds=frozenset({"play"})))))
    recorder = Recorder(world, EventSelection(jobs=frozenset({"a"})))
    tasks.append(await live(recorder))
    matched = 0
    matches = EventSelection.matches

    def counted(self: EventSelection, event: Event) -> bool:
        nonlocal matched
        matched += 1
        return matches(self, event)

    monkeypatch.setattr(EventSelection, "matches", counted)
    world.commit({"job": "a"})
    assert (recorder.heard, matched) == ([world.broadcaster.last], 1)
    for task in tasks:
        task.cancel()


async def test_one_job_is_followed_to_its_end_whatever_types_are_selected() -> None:
    world = World()
    recorder = Recorder(world, EventSelection(jobs=frozenset({"a"}), types=frozenset({"log"})))
    task = await live(recorder)
    world.commit({"status": "DONE"})
    world.commit({}, type_="step")
    world.commit({}, type_="deleted")
    assert (recorder.heard, recorder.batches) == ([], [1, 1])
    task.cancel()


async def test_changes_that_a_subscriber_has_read_do_not_follow() -> None:
    world = World()
    recorder = Recorder(world, EventSelection(jobs=frozenset({"a"})))
    with recorder.subscription as subscription:
        subscription.begin(0, version=3)
        async for _ in subscription.history():
            pass
        world.commit({"version": 2}, {"version": 3}, {"version": 4})
        world.commit({"version": 3}, type_="log")
    assert recorder.heard == [event.id for event in world.log.events[2:]]


async def test_subscribers_restart_and_stop() -> None:
    world = World()
    recorder = Recorder(world, EventSelection())
    task = await live(recorder)
    world.broadcaster.on_log("another", 5, ())
    world.broadcaster.close()
    assert (recorder.restarts, recorder.stops) == (1, 1)
    assert str(world.broadcaster.cursor) == "another-5"
    task.cancel()
