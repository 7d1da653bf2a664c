"""Which sync child runs what: a line of jobs each, of which the head runs and the others are only reserved.

1. Lines are for short jobs: how many fit is learned from how long a kind takes. A long job stands alone.
2. All jobs of a line come from one queue, in that queue's order, so that its limit and its priorities hold.
3. Behind a head that takes its time nobody waits: the others are taken back.
"""

from __future__ import annotations

from collections import deque

from bide.server.engine.attempt import Attempt
from bide.server.registry import Kind
from bide.server.store import ClaimRequest
from bide.server.worker.supervisor import ChildProcess

WORTH = 0.005  # seconds of work that a line may hold
DEEPEST = 48
WHILE = 0.02  # seconds after which a head is not short any more
SHORT = 0.0025  # a kind is worth a line when two of its jobs fit


class Durations:
    """How long attempts of each kind have taken lately, from the engine's own watch."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def learn(self, kind: str, seconds: float) -> None:
        before = self._average.get(kind, seconds)
        # A long one counts at once, short ones have to prove themselves.
        weight = 0.5 if seconds > before else 0.1
        self._average[kind] = before + weight * (seconds - before)

    def depth(self, kind: Kind) -> int:
        average = self._average.get(kind.name)
        if average is None or average > SHORT or kind.policy.at_most_once:
            return 1
        return max(2, min(DEEPEST, int(WORTH / max(average, 1e-6))))


class Prefetch:
    """The sync children: idle ones, and the lines of the others."""

    def __init__(self, most_jobs: int | None) -> None:
        self.durations = Durations()
        self.idle: list[ChildProcess] = []
        self._lines: dict[ChildProcess, deque[Attempt]] = {}
        self._most_jobs = most_jobs

    def take_idle(self) -> ChildProcess | None:
        return self.idle.pop() if self.idle else None

    def append(self, running: Attempt) -> None:
        self._lines.setdefault(running.child, deque()).append(running)

    def remove(self, running: Attempt) -> Attempt | None:
        """Takes it out; the job that runs now, if the one before it has ended."""
        line = self._lines[running.child]
        was_head = line[0] is running
        line.remove(running)
        if not line:
            del self._lines[running.child]
        return line[0] if was_head and line else None

    def forget(self, child: ChildProcess) -> None:
        """Gives it no more jobs. Those of its line that have ended stay until their ends are stored."""
        if child in self.idle:
            self.idle.remove(child)

    def busy(self, child: ChildProcess) -> bool:
        return child in self._lines

    def heads(self) -> list[Attempt]:
        return [line[0] for line in self._lines.values()]

    def behind(self, running: Attempt) -> int:
        """How many wait behind it."""
        return len(self._lines[running.child]) - 1

    def plenty(self, running: Attempt) -> bool:
        """Whether its child has more to do than half of what its line could hold."""
        return 2 * self.behind(running) > self.durations.depth(running.kind)

    def shortest(self, queue: str) -> ChildProcess | None:
        """The child whose line a reserved job of this queue joins."""
        fitting = [
            (len(line), child.name)
            for child, line in self._lines.items()
            if line[0].job.queue == queue and child.state == "idle"
        ]
        if not fitting:
            return None
        name = min(fitting)[1]
        return next(child for child in self._lines if child.name == name)

    def wants(
        self, hints: dict[tuple[str, str], int], kinds: dict[str, Kind], now: float
    ) -> list[ClaimRequest]:
        """What could be reserved behind heads that have not run for long."""
        room: dict[str, int] = {}
        for child, line in self._lines.items():
            head = line[0]
            more = self.durations.depth(head.kind) - len(line)
            if self._most_jobs is not None:
                more = min(more, self._most_jobs - child.jobs_done - len(line))
            fresh = head.started is not None and now - head.started < WHILE
            if more > 0 and fresh and child.state == "idle" and head.stopping is None:
                room[head.job.queue] = room.get(head.job.queue, 0) + more
        wants = []
        for queue, limit in room.items():
            hot = tuple(k for q, k in hints if q == queue and not kinds[k].is_async)
            short = frozenset(k for k in hot if self.durations.depth(kinds[k]) > 1)
            if short:
                wants.append(ClaimRequest(queue, hot, limit, 0, short))
        return wants
