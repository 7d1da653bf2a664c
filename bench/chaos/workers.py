"""Workers on simulated machines and their broker, and the faults injected into them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tests.servers.relay import Relay

from bench.chaos.hosts import Host
from bench.chaos.marks import Tail

HOUR = 3600


class Injected(NamedTuple):
    """The processes that were killed or frozen, and when the component was available again."""

    pids: frozenset[int] = frozenset()
    back: float = 0.0


class Broker(Protocol):
    @property
    def port(self) -> int: ...
    @property
    def url(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...
    def flush(self) -> None: ...
    def end(self) -> None: ...


Fault = Callable[[], Injected | None]  # returns None if there was no target


class WorkerGroup:
    """Injects one fault after another; only a frozen worker stays frozen during the next ones.

    The worker of one job gets at most two faults, because the service gives up a job that has lost three workers.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        broker: Broker,
        wires: Sequence[Relay],
        tail: Tail,
        rng: random.Random,
        frozen: float,
    ) -> None:
        self.hosts = hosts
        self._broker = broker
        self._wires = wires
        self._tail = tail
        self._rng = rng
        self._frozen = frozen
        self._hits: Counter[str] = Counter()  # faults of the worker of each job
        self._timers: list[threading.Timer] = []
        self._over = threading.Event()
        self._tending = threading.Thread(target=self._tend, daemon=True)

    @property
    def faults(self) -> dict[str, Fault]:
        return {
            "child": self._child,
            "worker": self._worker,
            "frozen": self._freeze,
            "clock": self._clock,
            "broker": self._restart,
            "flushed": self._flush,
            "reset": self._reset,
        }

    def _at_work(self) -> dict[Host, dict[int, str]]:
        """The workers that run jobs now, without those whose job already had two faults."""
        self._tail.grow()
        running = dict(self._tail.open)
        found = {}
        for host in self.hosts:
            jobs = {pid: running[pid] for pid in host.family & running.keys()}
            if jobs and not host.frozen and all(self._hits[job] < 2 for job in jobs.values()):
                found[host] = jobs
        return found

    def _choose(self) -> tuple[Host, dict[int, str]] | None:
        hosts = self._at_work()
        return self._rng.choice(list(hosts.items())) if hosts else None

    def _child(self) -> Injected | None:
        chosen = self._choose()
        killed = chosen and chosen[0].kill_child(self._rng, set(chosen[1]))
        if not chosen or not killed:
            return None
        for pid in killed:
            self._hits[chosen[1][pid]] += 1
            self._tail.open.pop(pid, None)
        return Injected(killed, time.monotonic())

    def _worker(self) -> Injected | None:
        chosen = self._choose()
        if chosen is None:
            return None
        host, jobs = chosen
        self._hits.update(jobs.values())
        killed = host.kill()
        time.sleep(self._rng.uniform(0, 0.5))
        host.start()
        return Injected(killed, time.monotonic())

    def _freeze(self) -> Injected | None:
        """Freeze a worker for longer than any heartbeat timeout, then resume it."""
        chosen = self._choose()
        if chosen is None or any(host.frozen for host in self.hosts):
            return None
        host, jobs = chosen
        self._hits.update(jobs.values())
        family = host.family
        host.freeze(alone=self._rng.random() < 0.3)
        timer = threading.Timer(self._frozen, host.thaw)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)
        return Injected(frozenset(family), time.monotonic())

    def _clock(self) -> Injected | None:
        for host in self.hosts:
            if host.clock is not None:
                host.clock.step(self._rng.choice((HOUR, -HOUR, 0)))
                return Injected()
        return None

    def _restart(self) -> Injected:
        self._broker.kill()
        time.sleep(self._rng.uniform(0, 0.5))
        self._broker.start()
        return Injected(back=time.monotonic())

    def _flush(self) -> Injected:
        self._broker.flush()
        return Injected(back=time.monotonic())

    def _reset(self) -> Injected | None:
        return Injected(back=time.monotonic()) if sum(wire.reset() for wire in self._wires) else None

    def start(self) -> None:
        for host in self.hosts:
            host.start()
        self._tending.start()

    def _tend(self) -> None:
        while not self._over.wait(0.5):
            for host in self.hosts:
                host.tend()

    def await_work(self, longest: float = 60.0) -> None:
        """Wait until the first job has started."""
        end = time.monotonic() + longest
        while not self._tail.grow() and self._tail.last is None:
            if time.monotonic() > end:
                raise RuntimeError(f"no job was started: {[host.log[-2000:] for host in self.hosts]}")
            time.sleep(0.05)

    def thaw(self) -> None:
        """Wait until every frozen worker is resumed."""
        for timer in self._timers:
            timer.join()

    @property
    def given_up(self) -> int:
        return sum(host.given_up for host in self.hosts)

    def stop(self) -> None:
        self._over.set()
        if self._tending.is_alive():
            self._tending.join()
        for timer in self._timers:
            timer.cancel()
        for host in self.hosts:
            host.stop()
