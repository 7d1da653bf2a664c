"""What a worker does with a hint: follows it, holds it, or leaves it to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bide.server.engine.celery import hint_consumer as module
from bide.server.engine.celery.hint_consumer import HintConsumer, strategy


class Message:
    def __init__(self, payload: Any = None) -> None:
        self.payload = payload
        self.fate: list[str] = []

    def ack_log_error(self, log: Any, errors: Any) -> None:
        self.fate.append("acknowledged")

    def reject_log_error(self, log: Any, errors: Any, requeue: bool) -> None:
        assert requeue
        self.fate.append("given back")


class Consumer:
    """Celery's, as far as HintConsumer uses it. What is asked for from other threads is done when the test says so."""

    connection_errors = ()

    def __init__(self, *queues: str) -> None:
        self.taken = set(queues)
        self.asked: list[Callable[[], None]] = []
        self.hub = self.task_consumer = self.app = self.amqp = self.queues = self

    def __getitem__(self, queue: str) -> str:
        return queue

    def call_soon(self, do: Callable[[str], None], queue: str) -> None:
        self.asked.append(lambda: do(queue))

    def cancel_by_queue(self, queue: str) -> None:
        self.taken.discard(queue)

    def add_queue(self, queue: str) -> None:
        self.taken.add(queue)

    def consume(self) -> None:
        pass

    def turn(self) -> None:
        asked, self.asked = self.asked, []
        for do in asked:
            do()


class World:
    def __init__(self) -> None:
        self.free = {"video": True, "mail": True}
        self.hints: list[str] = []
        self.now = 100.0
        self.hint_consumer = HintConsumer(self)
        self.consumer = Consumer("video", "mail")
        self.hint_consumer.attach(self.consumer)

    def has_capacity(self, queue: str) -> bool:
        return self.free[queue]

    def hint(self, queue: str) -> None:
        self.hints.append(queue)

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.hint_consumer.tick()
        self.consumer.turn()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr("bide.server.engine.celery.hint_consumer.time.monotonic", lambda: world.now)
    return world


def test_a_hint_is_followed_when_there_is_room(world: World) -> None:
    message = Message()
    world.hint_consumer.handle(message, "video")
    assert (message.fate, world.hints) == (["acknowledged"], ["video"])


def test_a_hint_is_held_while_a_short_job_ends(world: World) -> None:
    world.free["video"] = False
    message, other = Message(), Message()
    world.hint_consumer.handle(message, "video")
    world.hint_consumer.handle(other, "video")
    world.tick(module.HOLD / 2)
    assert (message.fate, other.fate, world.hints) == ([], ["acknowledged"], [])
    world.free["video"] = True
    world.tick()
    assert (message.fate, world.hints) == (["acknowledged"], ["video"])
    assert world.consumer.taken == {"video", "mail"}


def test_a_busy_worker_leaves_the_queue_to_others_until_it_is_free(world: World) -> None:
    world.free["video"] = False
    message = Message()
    world.hint_consumer.handle(message, "video")
    world.tick(2 * module.HOLD)
    assert (message.fate, world.hints) == (["given back"], [])
    assert world.consumer.taken == {"mail"}
    world.tick(60)
    assert world.consumer.taken == {"mail"}
    world.free["video"] = True
    world.tick()
    # It looks by itself too: what came meanwhile may have had no other to go to.
    assert (world.consumer.taken, world.hints) == ({"video", "mail"}, ["video"])


def test_a_new_connection_begins_anew(world: World) -> None:
    world.free["video"] = False
    message = Message()
    world.hint_consumer.handle(message, "video")
    world.hint_consumer.detach()
    fresh = Consumer("video", "mail")
    world.hint_consumer.attach(fresh)
    world.consumer = fresh
    world.tick(60)
    assert message.fate == []  # the broker gives it to another by itself
    assert fresh.taken == {"video", "mail"}


def test_what_comes_at_the_end_goes_back(world: World) -> None:
    world.hint_consumer.close()
    message = Message()
    world.hint_consumer.handle(message, "video")
    assert (message.fate, world.hints) == (["given back"], [])


def test_a_message_that_is_no_hint_is_dropped(world: World) -> None:
    world.consumer.bide_hint_consumer = world.hint_consumer  # type: ignore[attr-defined]
    handle = strategy(None, world.consumer, world.consumer)
    strange, hint = Message({"no": "hint"}), Message([["mail"], {}, {}])
    handle(strange, None)
    handle(hint, None)
    assert (strange.fate, hint.fate, world.hints) == (["acknowledged"], ["acknowledged"], ["mail"])
