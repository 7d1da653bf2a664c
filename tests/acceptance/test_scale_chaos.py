"""PostgreSQL, a broker, two replicas and two workers, with faults of all of them: each acknowledged job ends, once.

It imports bench, because it runs small trials of `python -m bench.chaos --only scale`, and tests how that judges.
"""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from bench.chaos import recovery, scale
from bench.chaos.follower import Follower
from bench.chaos.judge import Row, Wanted, judge_record
from bench.chaos.kills import Kill
from bench.chaos.marks import BEGIN, END, Mark

from tests.servers.postgres import Postgres
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
from tests.servers.relay import Relay
from tests.waiting import until

LEASE = 2.0
# The database is last, when all others are available again: no lease is lost during its outage.
ON_ALL = (
    "child",
    "frozen",
    "flushed",
    "reset",
    "worker",
    "clock",
    "broker",
    "replica",
    "pool",
    "child",
    "database",
)
# Without a restart of the broker, which takes too long for this test.
ON_BROKER = ("child", "flushed", "reset", "worker", "reset")


class Spared(RabbitServer):
    """The broker that all tests share: it gets faults, and is not stopped at the end."""

    def __init__(self, rabbit: RabbitServer) -> None:
        self.__dict__ = rabbit.__dict__

    def end(self) -> None:
        pass


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: Postgres,
    redis_server: RedisServer,
    rabbit: RabbitServer,
) -> dict[str, scale.Outcome]:
    """Both at once: most of a bad day is waiting."""
    one, two = (tmp_path_factory.mktemp(name) for name in ("redis", "rabbitmq"))

    def redis() -> scale.Outcome:
        return scale.trial(one, RedisServer, jobs=200, faults=ON_ALL, lease=LEASE, seed=7, longest=60)

    def rabbitmq() -> scale.Outcome:
        return scale.trial(
            two, lambda home: Spared(rabbit), jobs=100, faults=ON_BROKER, lease=LEASE, seed=8, longest=60
        )

    with ThreadPoolExecutor(2) as pool:
        running = {"Redis": pool.submit(redis), "RabbitMQ": pool.submit(rabbitmq)}
        return {name: future.result() for name, future in running.items()}


@pytest.mark.timeout(180)
@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "jobs", "faults"), [("Redis", 200, ON_ALL), ("RabbitMQ", 100, ON_BROKER)]
)
def test_nothing_is_lost_repeated_or_reported_twice(
    outcomes: dict[str, scale.Outcome], name: str, jobs: int, faults: tuple[str, ...]
) -> None:
    outcome = outcomes[name]
    assert outcome.violations == []
    assert sum(outcome.ended.values()) == outcome.acknowledged >= jobs
    assert sum(outcome.injected.values()) == len(faults), "each fault had a target"
    again = sum(each.repeated for each in outcomes.values())
    assert again >= 1, "each job of a killed worker started again"


def test_a_result_of_a_stale_attempt_is_found_out() -> None:
    rows = [
        Row("fine", "DONE", 2, '{"number": 7, "fence": 2}', None, None, None, 1),
        Row("kept-old", "DONE", 2, '{"number": 7, "fence": 1}', None, None, None, 1),
        Row("ran-newer", "DONE", 1, "7", None, None, None, 0),
    ]
    events = [(row.id, "status", f'{{"status": "DONE", "fence": {row.fence}}}') for row in rows]
    left = [
        Mark("fine", BEGIN, 1, 10, 1.0),
        Mark("fine", BEGIN, 2, 11, 2.0),
        Mark("ran-newer", BEGIN, 2, 11, 3.0),
    ]
    found = judge_record(rows, events, left, [Wanted(row.id, 7) for row in rows]).violations
    assert [(violation.promise, violation.text.split()[0]) for violation in found] == [
        ("stale", "kept-old"),
        ("stale", "ran-newer"),
    ]


def test_an_event_that_is_numbered_below_what_was_seen_is_found_out(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE followed")
    url = postgres.url.replace("/postgres", "/followed")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA bide CREATE TABLE events (id bigint)")
        follower = Follower(url)
        follower.start()
        connection.execute("INSERT INTO bide.events VALUES (1), (3)")
        until(lambda: follower.seen == [1, 3])
        connection.execute("INSERT INTO bide.events VALUES (2), (4)")
        assert [violation.text for violation in follower.missed()] == ["event 2 came late"]


def test_who_was_frozen_has_recovered_when_another_begins_its_job() -> None:
    left = [
        Mark("a", BEGIN, 1, 10, 1.0),
        Mark("b", BEGIN, 1, 11, 1.0),
        Mark("b", END, 1, 11, 1.1),
        Mark("a", BEGIN, 2, 20, 4.0),
        Mark("b", BEGIN, 2, 20, 5.0),  # it had left b before
        Mark("a", END, 1, 10, 9.0),  # let go, it does not know better
    ]
    assert recovery.of_frozen(left, [Kill("frozen", 2.0, frozenset({10, 11}))]) == [2.0]
    assert recovery.of_returns(left, [1.5, 4.5, 8.0]) == [2.5, 0.5]


def test_a_wire_carries_both_ways_and_cuts_without_a_goodbye() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = Relay(listener.getsockname()[1])
        try:
            with socket.create_connection(("127.0.0.1", wire.port), timeout=10) as near:
                near.sendall(b"early")
                far, _ = listener.accept()
                with far:
                    far.settimeout(10)
                    assert far.recv(100) == b"early"
                    big = bytes(5_000_000)
                    sender = threading.Thread(target=far.sendall, args=(big,))
                    sender.start()
                    got = 0
                    while got < len(big):
                        got += len(near.recv(1 << 20))
                    sender.join()
                    assert wire.reset() == 1
                    with pytest.raises(ConnectionResetError):
                        near.recv(1)
                    with pytest.raises(ConnectionResetError):
                        far.recv(1)
            listener.close()
            with (
                pytest.raises(ConnectionResetError),
                socket.create_connection(("127.0.0.1", wire.port), timeout=10) as nobody,
            ):
                nobody.recv(1)
        finally:
            wire.end()
