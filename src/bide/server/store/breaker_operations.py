"""The operations on breakers inside a transaction. `core.jobs.breaker` decides."""

from __future__ import annotations

import msgspec

from bide.core.jobs.breaker import BreakerState, counted, entered, has_failed, probed
from bide.server.store import BreakerEntry, BreakerReport, BreakerVerdict, RecordAccess
from bide.server.store.transaction import Transaction, encode

_read = msgspec.json.Decoder(BreakerState).decode


def read_state(text: str | None) -> BreakerState:
    return BreakerState() if text is None else _read(text)


def write_state(tx: RecordAccess, name: str, before: BreakerState, after: BreakerState) -> None:
    if after is not before:
        tx.put_text("breakers", name, encode(after).decode())


def prober_lives(tx: Transaction, state: BreakerState) -> bool:
    """Whether a worker still holds the attempt of the prober."""
    if state.prober is None:
        return False
    job_id, fence = state.prober
    job = tx.job(job_id)
    return job is not None and job.held and job.fence == fence


def enter(tx: Transaction, name: str, job_id: str, fence: int) -> BreakerEntry:
    state = read_state(tx.text("breakers", name))
    after = entered(state, job_id, fence, prober_lives=prober_lives(tx, state), now=tx.now)
    if after is None:
        return BreakerEntry(False, state)
    write_state(tx, name, state, after)
    return BreakerEntry(True, after)


def report(tx: RecordAccess, done: BreakerReport) -> BreakerVerdict:
    state = read_state(tx.text("breakers", done.name))
    failure = done.job if done.prober is None else None
    repeated = failure is not None and has_failed(
        counted(state, done.settings, done.calls, None, now=tx.now, jitter=0.0), failure
    )
    after = counted(state, done.settings, done.calls, failure, now=tx.now, jitter=done.jitter)
    if done.prober is not None and done.job is not None:
        prober = (done.job, done.prober)
        after = probed(after, done.settings, prober, done.success, now=tx.now, jitter=done.jitter)
    write_state(tx, done.name, state, after)
    return BreakerVerdict(after, repeated or done.prober is not None)
