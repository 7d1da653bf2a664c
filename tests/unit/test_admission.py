"""Back-pressure: which jobs are refused, and for how long."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from bide.core.errors import Overloaded
from bide.core.jobs.fair import Weights
from bide.core.jobs.record import Job
from bide.core.wire.http import Event
from bide.server.admission import REFRESH, Admission
from bide.server.config import AdmissionConfig
from bide.server.estimates import Estimates
from bide.server.registry import Registry
from bide.server.store import NewJob, QueueState

NOW = 1000.0


class Queues:
    """The queues of a store, and the workers that serve them."""

    def __init__(self) -> None:
        self.state = QueueState("default")
        self.keys: set[tuple[str, str, str]] = set()
        self.tenants: dict[str, int] = {}  # waiting jobs; empty: all are of one tenant
        self.reads = self.counts = 0

    def now(self) -> float:
        return NOW

    async def queues(self) -> list[QueueState]:
        self.reads += 1
        return [self.state]

    async def waiting_by_tenant(self, queue: str) -> dict[str, int]:
        self.counts += 1
        return self.tenants or {"-": self.state.waiting}

    async def has_key(self, tenant: str, kind: str, key: str) -> bool:
        return (tenant, kind, key) in self.keys

    def serves(self, queue: str) -> bool:
        return True

    def slots(self, queue: str) -> int:
        return 2


class Bench:
    def __init__(self, seconds: float | None = 4.0, **bounds: Any) -> None:
        registry = Registry()

        @registry.job()
        def work() -> None: ...

        self.time = 0.0
        self.queues = Queues()
        estimates = Estimates()
        if seconds is not None:
            facts = {"kind": "work", "status": "DONE", "seconds": seconds}
            estimates.on_events([Event(n, "j", "status", 0.0, facts) for n in range(1, 21)])
        fleet: Any = self.queues
        weights = Weights(tenants={"heavy": 10.0})
        config = AdmissionConfig.read(bounds)
        self.admission = Admission(
            config, self.queues, registry, estimates, fleet, weights, clock=lambda: self.time
        )

    def wait(self, waiting: int) -> None:
        self.queues.state = QueueState("default", waiting=waiting, running=2)
        self.time += 2 * REFRESH

    async def refusal(self, **fields: Any) -> dict[str, Any] | None:
        """The members of the problem; None if the job is accepted."""
        key = fields.pop("key", None)
        job = Job("j", "work", "default", NOW, NOW, due=NOW, **fields)
        try:
            await self.admission.check(NewJob(job, b"{}", key=key))
        except Overloaded as problem:
            assert problem.members is not None
            assert problem.headers["Retry-After"] == str(problem.members["retryAfter"])
            return problem.members
        return None


async def test_a_job_that_would_wait_too_long_is_refused_until_the_queue_is_shorter() -> None:
    bench = Bench(wait=60)
    bench.wait(26)
    assert await bench.refusal() is None  # 27 jobs of about 4 s for 2 children
    bench.wait(99)
    told = await bench.refusal()
    assert told is not None
    assert told["predictedWait"] == pytest.approx(200, rel=0.1)
    assert told["retryAfter"] == pytest.approx(140, rel=0.15)
    # After that time, about 70 jobs have started.
    bench.wait(26)
    assert await bench.refusal() is None


async def test_low_priorities_are_refused_first() -> None:
    bench = Bench(backlog=100)
    for waiting, refused in ((79, []), (80, [-1]), (99, [-1]), (100, [-1, 0]), (125, [-1, 0, 1])):
        bench.wait(waiting)
        found = [p for p in (-1, 0, 1) if await bench.refusal(priority=p) is not None]
        # The jobs that were accepted just now count, too.
        assert set(refused) <= set(found) and len(found) - len(refused) <= 1, waiting
        bench.wait(waiting)
        assert (await bench.refusal(priority=0) is not None) == (0 in refused)


async def test_jobs_that_are_accepted_between_two_reads_count() -> None:
    bench = Bench(seconds=None, backlog=10)
    bench.wait(0)
    found = [await bench.refusal() for _ in range(15)]
    assert [told is None for told in found] == [True] * 10 + [False] * 5
    assert bench.queues.reads == 1
    told = found[-1]
    assert told is not None and (told["predictedWait"], told["retryAfter"]) == (None, 5)


async def test_a_refusal_does_not_say_how_many_jobs_wait() -> None:
    """They may be those of other tenants."""
    bench = Bench(seconds=None, backlog=10)
    bench.wait(4711)
    job = Job("j", "work", "default", NOW, NOW, due=NOW)
    with pytest.raises(Overloaded) as refused:
        await bench.admission.check(NewJob(job, b"{}"))
    assert "bound of 10" in refused.value.detail
    assert "471" not in f"{refused.value.detail} {refused.value.members}"


async def test_a_job_that_cannot_meet_its_deadline_is_refused() -> None:
    bench = Bench(deadlines=True)
    bench.wait(49)  # 100 s
    assert await bench.refusal(deadline=NOW + 120) is None
    told = await bench.refusal(deadline=NOW + 60)
    assert told is not None and told["retryAfter"] == pytest.approx(45, abs=10)
    assert await bench.refusal() is None
    # A scheduled job waits anyway.
    assert await bench.refusal(deadline=NOW + 400, run_at=NOW + 390) is None
    assert await bench.refusal(deadline=NOW + 391, run_at=NOW + 390) is not None


async def test_a_repeat_is_not_refused() -> None:
    bench = Bench(backlog=1)
    bench.wait(5)
    bench.queues.keys.add(("-", "work", "k"))
    assert await bench.refusal(key="k") is None
    assert await bench.refusal(key="other") is not None


async def test_without_a_bound_nothing_is_refused_or_read() -> None:
    bench = Bench(queues={"other": {"backlog": 1}})
    bench.wait(10**6)
    assert await bench.refusal(deadline=NOW + 1) is None
    assert bench.queues.reads == 0
    assert not Bench().admission.on


async def test_lists_are_refused_while_the_service_is_late() -> None:
    bench = Bench(lag=0.5)
    bench.admission.check_load()
    bench.admission.observe(2.0)
    with pytest.raises(Overloaded):
        bench.admission.check_load()
    assert [w.code for w in bench.admission.warnings()] == ["overloaded"]
    bench.time += 3.0
    bench.admission.check_load()
    bench.time += 20.0
    assert bench.admission.warnings() == []


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"wait": 0}, "[admission] wait: 0 is not a bound. Use a number of seconds above 0"),
        ({"backlog": 1.5}, "[admission] backlog: 1.5 is not a bound. Use a whole number above 0"),
        ({"deadlines": 1}, "[admission] deadlines: 1 is neither true nor false"),
        ({"lagg": 1}, "[admission]: unknown setting 'lagg'"),
        ({"queues": {"a": {"lag": 1}}}, "[admission.queues.a]: unknown setting 'lag'"),
    ],
)
def test_a_wrong_bound_is_reported(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        AdmissionConfig.read(table)
    assert message in str(raised.value)


def test_a_queue_replaces_the_bounds_that_it_names() -> None:
    config = AdmissionConfig.read(
        {
            "wait": 60,
            "backlog": 100,
            "lag": 1,
            "queues": {"video": {"wait": 600, "backlog": "unlimited"}},
        }
    )
    assert (config.of("video").wait, config.of("video").backlog) == (600, None)
    assert (config.of("other").wait, config.of("other").backlog, config.lag) == (60, 100, 1)


async def test_a_refusal_leaves_nothing_for_the_garbage_collector() -> None:
    bench = Bench(backlog=1)
    bench.wait(10)
    assert await bench.refusal() is not None
    gc.collect()
    gc.disable()
    try:
        assert await bench.refusal() is not None
        assert not [one for one in gc.get_objects() if isinstance(one, Overloaded)]
    finally:
        gc.enable()


async def test_the_wait_is_that_of_the_tenants_share() -> None:
    """A tenant that floods the queue is refused; others, which start after a turn of each, are not."""
    bench = Bench(wait=60)
    bench.wait(100_001)
    bench.queues.tenants = {"flood": 100_000, "small": 1}
    assert await bench.refusal(tenant="flood") is not None
    for _ in range(3):
        assert await bench.refusal(tenant="small") is None
    assert await bench.refusal(tenant="new", deadline=NOW + 60) is None
    assert bench.queues.counts == 1  # the accepted jobs are added
    # With more jobs of its own it waits longer: each of them follows one of the other tenants.
    told = await bench.refusal(tenant="many")
    assert told is None
    bench.queues.tenants = {"flood": 100_000, "many": 20}
    bench.time += 2
    told = await bench.refusal(tenant="many")
    assert told is not None
    assert told["predictedWait"] == pytest.approx((20 + 21 + 1) * 4 / 2, rel=0.1)
    # Ten times the share: ten jobs per turn.
    bench.queues.tenants = {"flood": 100_000, "heavy": 20}
    bench.time += 2
    assert await bench.refusal(tenant="heavy") is None
