"""One attempt as the service sees it: whose child runs it, when it must have ended, and why it is being stopped."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from bide.core.job import Begun, Change, advance
from bide.core.record import Job, Progress, Status
from bide.core.retry import Outcome, Raised, Stopped, Vanished
from bide.server.progress import LiveProgress, attempt_key
from bide.server.registry import Kind
from bide.server.store import Claim
from bide.server.worker import protocol as p
from bide.server.worker.supervisor import ChildProcess

CANCEL, SHUTDOWN, TAKEN = "cancel", "shutdown", "taken"


class Attempt:
    """An attempt under way."""

    def __init__(self, job: Job, kind: Kind, child: ChildProcess) -> None:
        self.job = job
        self.kind = kind
        self.child = child
        self.started: float | None = None  # None: it stands in its child's line
        self.took: float | None = None  # as its child has measured it
        self.sign = 0.0  # the last sign of life
        self.attempt = attempt_key(job)
        self.live = LiveProgress(0, job.progress or Progress())
        self.log: list[dict[str, Any]] = []
        self.inbox: deque[Any] = deque()  # what came while an earlier message was being stored
        self.storing = False
        self.asked = 0  # how many answers the handler waits for
        self.incomplete = False  # a child that it spawned could not be stored: it must not succeed
        self.stopping: str | None = None
        self.cause: Raised | None = None
        self.stop_since = 0.0
        self.stage = 0
        self.started_at = 0.0

    @property
    def ended(self) -> bool:
        """Whether its handler has ended, and the end waits until an earlier message is stored."""
        return any(isinstance(message, p.AttemptEnd) for message in self.inbox)

    def moved(self, progress: Progress | None, at: float) -> None:
        if progress is not None:
            self.live = LiveProgress(self.live.number + 1, progress, at)

    def start(self, now: float, at: float) -> None:
        """It has come to the head of its line. `at` is the same moment by the store's clock."""
        self.started = self.sign = now
        self.started_at = at
        if self.stopping is not None:  # the wish came while it stood in line
            self.stop_since = now
            self.child.tell_to_stop(self.job.id, self.job.fence)

    def begin(self) -> list[Change]:
        """What the store has to be told before anything else about it: nothing, unless it was only reserved."""
        if self.job.running or self.started is None:
            return []
        begun = Begun(
            job_id=self.job.id,
            owner=self.job.owner,
            fence=self.job.fence,
            started_at=self.started_at,
        )
        self.job = advance(self.job, begun, self.started_at)
        return [begun]

    def overrun(self, now: float) -> Raised | None:
        """The limit that it has broken, if any."""
        if self.started is None or self.ended:
            return None
        if self.kind.timeout is not None and now - self.started > self.kind.timeout:
            return Raised(
                code="TIMEOUT", message=f"the attempt took longer than {self.kind.timeout:g} s"
            )
        waits = self.storing or self.asked > 0  # for the store: its outage is not the handler's
        if self.kind.stall is not None and not waits and now - self.sign > self.kind.stall:
            return Raised(code="STALLED", message=f"no progress for {self.kind.stall:g} s")
        return None

    def answer(self, number: int, result: bytes | None = None, *, stored: bool, now: float) -> None:
        """Answers a request of the handler, which has its whole `stall` again from now on."""
        self.asked -= 1
        self.sign = now
        self.child.send(p.StepReply(number, stored, result))

    def stop(self, reason: str, now: float, cause: Raised | None = None) -> None:
        """Tells it to stop; a first reason stays, except that a job which is no longer ours has no outcome."""
        if reason == TAKEN:
            self.stopping = TAKEN
        if self.stopping is None or self.stage == 0:
            self.stopping = self.stopping or reason
            self.cause = self.cause or cause
            self.stop_since = now
            self.stage = 1
            if self.started is None:
                self.child.ask_back()
            else:
                self.child.tell_to_stop(self.job.id, self.job.fence)

    def press(self, now: float, grace: float) -> None:
        """Told, then terminated, then killed."""
        if self.started is None or self.child.state == "gone":
            return
        if self.stage == 1 and now - self.stop_since > grace:
            self.stage = 2
            self.child.terminate()
        elif self.stage == 2 and now - self.stop_since > 2 * grace:
            self.stage = 3
            self.child.kill()

    def outcome_of_end(self) -> Outcome | None:
        """What it means that the child is gone, or that the handler has obeyed. None: not ours to say."""
        if self.stopping == TAKEN:
            return None
        if self.stopping == SHUTDOWN:
            return Stopped()
        if self.cause is not None:
            return self.cause
        if self.stopping == CANCEL:
            return Stopped()  # the store makes it CANCELLED
        if self.child.killed or self.started is None:
            return (
                Stopped()
            )  # for the sake of another job in the same child, or behind it: not its own fault
        return Vanished(message=f"the worker was lost ({self.child.exit_text})")


def run_message(claim: Claim) -> p.RunJob:
    """What the child needs to know."""
    job = claim.job
    children = []
    for c in job.children:
        ended = claim.children.get(c.job_id)
        state = p.SpawnedJobState(c.job_id, c.key, c.kind, c.status)
        if ended is not None:
            state.result = bytes(ended.result) if ended.result is not None else None
            state.result_file = ended.result_file
            state.error = msgspec.to_builtins(ended.error)
            state.files = [p.GivenFile(c.job_id, file) for file in ended.files]
        children.append(state)
    return p.RunJob(
        job.id,
        job.fence,
        job.attempt,
        job.kind,
        claim.input,
        [p.GivenFile(f.job, f.file) for f in claim.files],
        {name: bytes(result) for name, result in claim.steps.items()},
        children,
        job.progress,
        [s.name for s in job.steps if s.status is Status.DONE and s.name not in claim.steps],
    )
