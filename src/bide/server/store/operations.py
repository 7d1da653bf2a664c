"""The operations on jobs inside a transaction, the same for every store: one function per operation.

Every write to an existing job goes through `core.jobs.state_machine.advance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec.structs import replace

from bide.core.errors import InvalidInput
from bide.core.jobs.fair import MUCH, FairTurns, RunningLimits, Slice, pick, start_order, wider
from bide.core.jobs.record import FAILED, Job, Status
from bide.core.jobs.retry import BREAKER, LOSS_CODES
from bide.core.jobs.state_machine import (
    Begun,
    Change,
    ChildEnded,
    Claimed,
    Delayed,
    Emitted,
    Failed,
    FailedForNow,
    Lost,
    MarkedOverdue,
    Refused,
    Rerun,
    Reserved,
    Spawned,
    StepKept,
    StepStarted,
    Succeeded,
    WrongStatus,
    WrongVersion,
    advance,
    cancel,
    ripples,
    target,
)
from bide.server.store import (
    STEPS_WITH_CLAIM,
    Claim,
    ClaimRequest,
    Inserted,
    Insertion,
    KeyConflict,
    KeyGone,
    LimitReached,
    Missing,
    NewJob,
    OverLimit,
    retry_budgets,
)
from bide.server.store.tenant_use import admit, take_place
from bide.server.store.transaction import Due, Key, Transaction
from bide.server.upload_record import UploadStatus

# A tuple, because `A | B` would be evaluated again for each change.
STEP_CHANGES = (StepStarted, StepKept)
KeyChange = tuple[Key, bytes, str | None]  # a key, its fingerprint, and the job that has it now


def insert(tx: Transaction, new: NewJob) -> Insertion:
    job = new.job
    stored = tx.existing(job.id)
    if stored is not None:
        return Inserted(stored, created=True)
    keys: list[KeyChange] = []
    if new.key is not None or new.content or new.unique:
        found = _find_earlier(tx, new, keys)
        if found is not None:
            return found
    use = None
    if new.limits is not None:
        admitted = admit(tx, new)
        if isinstance(admitted, LimitReached):
            return admitted
        use = admitted
    for key, fingerprint, replaces in keys:
        tx.keep_key(key, fingerprint, job.id, replaces=replaces)
    for file in new.files:
        if file.upload is not None:
            upload = tx.upload(file.upload)
            # It may have been removed since the input was checked.
            if upload is None or upload.status is not UploadStatus.DONE:
                detail = f"upload {file.upload} does not exist or is not complete"
                raise InvalidInput(detail, errors=[{"pointer": "/input", "detail": detail}])
            tx.use_upload(file.upload, job)
    tx.create(new)
    for record in new.records:
        if not record.if_absent or tx.text(record.table, record.name, job.tenant) is None:
            tx.put_text(record.table, record.name, record.text, job.tenant)
    tx.add_event(job, "status")
    return Inserted(job, created=True, use=use)


def _find_earlier(tx: Transaction, new: NewJob, keys: list[KeyChange]) -> Insertion | None:
    """Return the job of an earlier submission with the same key or the same content. If there is none, add the keys of the
    new job to `keys`.
    """
    own = (new.job.tenant, new.job.kind, new.key or "")
    if new.key is not None:
        used = tx.key(own)
        if used is not None:
            fingerprint, first = used
            if fingerprint != new.fingerprint:
                return KeyConflict(first)
            earlier = tx.job(first)
            return KeyGone(first) if earlier is None else Inserted(earlier, created=False)
    same: Job | None = None
    kept: list[KeyChange] = []
    for name, hashed in ((new.content_key, new.content), (new.unique_key, new.unique)):
        if name is not None and same is None:
            key = (new.job.tenant, new.job.kind, name)
            used = tx.key(key)
            earlier = None if used is None else tx.job(used[1])
            kept.append((key, hashed, None if used is None else used[1]))
            if earlier is not None:
                by_content = name == new.content_key
                stands = not _has_failed(earlier) if by_content else _is_unique(earlier, new, tx.now)
                same = earlier if stands else None
    if same is None:
        keys += kept
        if new.key is not None:
            keys.append((own, new.fingerprint, None))
        return None
    if new.key is not None:
        tx.keep_key(own, new.fingerprint, same.id)
    return Inserted(same, created=False)


def _is_unique(job: Job, new: NewJob, now: float) -> bool:
    """Whether no job with the same unique values may be created beside this one."""
    if not job.status.terminal:
        return True
    return job.status not in FAILED and now < job.created_at + new.unique_for


def _has_failed(job: Job) -> bool:
    """Whether the job has no result, and gets none without a retry."""
    return job.status in FAILED or (job.cancel_asked_at is not None and not job.status.terminal)


def apply(tx: Transaction, change: Change) -> Job | Refused | Missing:
    before = tx.job(change.job_id)
    if before is None:
        return gone(tx, change.job_id)
    if isinstance(change, Begun):
        return _begin(tx, before, change)
    return _emit(tx, before, change) if isinstance(change, Emitted) else _change(tx, before, change)


def _begin(tx: Transaction, before: Job, change: Begun) -> Job | Refused:
    """Start a prefetched job. It has no effects on parent and children."""
    try:
        after = advance(before, change, tx.now)
    except Refused as refusal:
        return refusal
    tx.change(before, after)
    tx.rollups.started(after, change.waited)
    tx.add_event(after, "status", None if change.waited is None else {"waited": change.waited})
    return after


def _change(tx: Transaction, before: Job, change: Change) -> Job | Refused:
    try:
        after = advance(before, change, tx.now)
    except Refused as refusal:
        return refusal
    if isinstance(change, Rerun) and (why := _refuse_rerun(tx, before, change)) is not None:
        return why
    if isinstance(change, FailedForNow) and change.budgeted is not None and after.due is not None:
        change = retry_budgets.claim(tx, change, change.budgeted)
        after = advance(before, change, tx.now)
    step = change if isinstance(change, STEP_CHANGES) else None
    if step is not None and _repeats(before, step):
        return before
    tx.change(before, after)
    if after.status.terminal and not before.status.terminal:
        tx.rollups.ended(before, after)
    if step is not None:
        status = Status.DONE if isinstance(step, StepKept) else Status.PROCESSING
        more: dict[str, Any] = {"step": {"name": step.name, "status": status}}
        if status is Status.DONE and (seconds := _step_seconds(after, step.name)) is not None:
            tx.rollups.step_ended(after, step.name, seconds)
            more["seconds"] = seconds
        tx.add_event(after, "step", more)
    elif isinstance(change, Reserved):
        pass  # a prefetch is not visible outside
    elif not before.status.terminal or after.run > before.run:
        # The end of a child changes an ended parent without an event, because a run has one terminal event.
        tx.add_event(after, "status", _facts_of(change))
    _store_more(tx, after, change)
    effects = ripples(before, after)
    if not effects:
        return after
    _apply_effects(tx, after, effects)
    # The effects may have changed this row again, if a child ended immediately.
    return tx.job(after.id) or after


def _facts_of(change: Change) -> dict[str, Any] | None:
    """What the event of a change has besides the facts of the job."""
    if isinstance(change, Lost) or (isinstance(change, Failed) and change.error.code in LOSS_CODES):
        # Only the upkeep, which observes leases, sets `lease`; the runner reports children that have exited.
        return {"lost": "process" if change.lease is None else "lease"}
    if isinstance(change, FailedForNow) and not isinstance(change, Delayed):
        return {"failed": True}
    if isinstance(change, Succeeded) and change.predicted is not None:
        return {"predicted": change.predicted}
    return None


def _refuse_rerun(tx: Transaction, job: Job, change: Rerun) -> Refused | None:
    """Return why a job cannot run again; None if it can."""
    if (child := _child_being_cancelled(tx, job)) is not None:
        reason = f"its child job {child.id} is still being cancelled; try again when that has ended"
        return WrongStatus(job, change, reason)
    reached = take_place(tx, job.tenant, change.waiting) if change.waiting else None
    return None if reached is None else OverLimit(job, change, reached)


def _store_more(tx: Transaction, after: Job, change: Change) -> None:
    """Store what belongs to a change besides the job and its event."""
    if isinstance(change, Succeeded):
        if change.remove_input and after.status is Status.DONE:
            # The sweep removes an expired upload that no job uses. So the bytes are removed after this commit, and also if
            # the service is killed right after it.
            tx.release_uploads(after.id)
        return
    if isinstance(change, MarkedOverdue):
        line = {"level": "warning", "logger": "bide.upkeep", "message": change.message}
        tx.add_event(after, "log", {"log": line, "loggedAt": tx.now})
    if isinstance(change, StepKept):
        tx.keep_step(after, change.name, change.result)
    if isinstance(change, FailedForNow) and change.waits_for is not None and after.due is not None:
        _wait(tx, after, change.waits_for)


def waiting_name(waits_for: str, now: float, job_id: str) -> str:
    """The name of the record of a waiting job. The names of a list are in the order of time."""
    return f"{waits_for} {now:017.6f} {job_id}"


def _wait(tx: Transaction, job: Job, waits_for: str) -> None:
    """Add a job to a waiting list."""
    tx.put_text("waiting_jobs", waiting_name(waits_for, tx.now, job.id), str(job.fence))
    list_, _, name = waits_for.partition(" ")
    reason = f"the breaker {name!r} is open" if list_ == BREAKER else f"{name!r} has too many retries"
    line = {"level": "info", "logger": "bide.waiting", "message": f"the job waits, because {reason}"}
    tx.add_event(job, "log", {"log": line, "loggedAt": tx.now, "waitsFor": waits_for})


def _emit(tx: Transaction, job: Job, change: Emitted) -> Job | Refused:
    """Add the chunks to the event log, without those that an earlier write has stored."""
    try:
        target(job, change)
    except Refused as refusal:
        return refusal
    stored = 0
    if change.repeated or tx.uncertain:
        last = tx.last_output(job)
        if last is not None and last["generation"] == job.fence:
            stored = max(0, last["index"] + 1 - change.first)
    total = change.total
    for number, chunk in enumerate(change.chunks):
        total += len(memoryview(chunk))
        if number >= stored:
            more = {"generation": job.fence, "index": change.first + number, "total": total}
            tx.add_event(job, "output", {**more, "output": chunk})
    return job


def _step_seconds(job: Job, name: str) -> float | None:
    """How long a finished step ran; None if an older version has started it."""
    for step in job.steps:
        if step.name == name and step.started_at is not None and step.finished_at is not None:
            return step.finished_at - step.started_at
    return None


def _child_being_cancelled(tx: Transaction, job: Job) -> Job | None:
    """A descendant that will end as CANCELLED. A new run would wait for it and then fail."""
    for child in job.children:
        found = tx.job(child.job_id)
        if found is None:
            continue
        if not found.status.terminal and found.cancel_asked_at is not None:
            return found
        if (descendant := _child_being_cancelled(tx, found)) is not None:
            return descendant
    return None


def _repeats(job: Job, change: StepStarted | StepKept) -> bool:
    """Whether the change is already stored and only the response was lost. Only steps need this check: a repeated begin or
    end of an attempt is refused.
    """
    known = {step.name: step.status for step in job.steps}.get(change.name)
    # A stored step has started, too; the commit with the lost response may have had both changes.
    return known is Status.DONE or (isinstance(change, StepStarted) and known is Status.PROCESSING)


def _apply_effects(tx: Transaction, after: Job, effects: Sequence[tuple[str, str]]) -> None:
    """Apply the effects of a change to parent and children."""
    for relative, effect in effects:
        if effect == "ended":
            apply(tx, ChildEnded(job_id=relative, child_id=after.id, status=after.status))
        elif effect == "rerun":
            if isinstance(apply(tx, Rerun(job_id=relative)), Missing):
                # The child was deleted and never finishes, so the parent must not wait for it.
                gone = ChildEnded(job_id=after.id, child_id=relative, status=Status.CANCELLED)
                apply(tx, gone)
        else:
            job = tx.job(relative)
            if job is not None and not job.status.terminal:
                apply(tx, cancel(job))


def resume_parked(tx: Transaction, job_id: str) -> bool:
    """Make a parked job due if no job that it waits for can still end. Return whether it became due."""
    job = tx.job(job_id)
    if job is None or not job.parked or job.due is not None:
        return False
    children = {child_id: tx.job(child_id) for child_id in job.waiting_for or ()}
    if any(child is not None and not child.status.terminal for child in children.values()):
        return False
    for child_id, child in children.items():
        status = Status.CANCELLED if child is None else child.status
        apply(tx, ChildEnded(job_id=job_id, child_id=child_id, status=status))
    return True


def gone(tx: Transaction, job_id: str) -> Missing:
    tenant = tx.tombstone(job_id)
    return Missing() if tenant is None else Missing(gone=True, tenant=tenant)


def spawn(tx: Transaction, change: Spawned, new: NewJob) -> Job | Refused | Missing:
    parent = tx.job(change.job_id)
    if parent is None:
        return gone(tx, change.job_id)
    try:
        target(parent, change)
    except Refused as refusal:
        return refusal
    for child in parent.children:
        if child.key == change.child.key and (earlier := tx.job(child.job_id)) is not None:
            return earlier
    insert(tx, new)
    after = advance(parent, change, tx.now)
    tx.change(parent, after)
    tx.add_event(after, "status")
    return new.job


def claim(tx: Transaction, due: Due, owner: str, lease: float, *, reserve: bool) -> Claim:
    before, input_, files, _ = due
    change = (Reserved if reserve and not before.parked else Claimed)(
        job_id=before.id, owner=owner, lease_until=tx.now + lease, lease_seconds=lease
    )
    after = advance(before, change, tx.now)
    tx.change(before, after)
    assert before.due is not None
    if isinstance(change, Claimed):
        tx.add_event(after, "status", {"waited": tx.now - before.due})
        if not before.parked:  # otherwise the same attempt continues
            tx.rollups.started(after, tx.now - before.due)
    return Claim(
        after,
        input_,
        files,
        tx.steps(after.id, STEPS_WITH_CLAIM) if after.steps else {},
        {
            c.job_id: child
            for c in after.children
            if c.status is not None and (child := tx.job(c.job_id)) is not None
        },
        before.due,
        _bytes_emitted(tx, after) if after.fence > 1 else 0,
    )


def _bytes_emitted(tx: Transaction, job: Job) -> int:
    """The size of the output stream that earlier attempts have made."""
    for event in reversed(tx.events):
        if event.job_id == job.id and event.type == "output":
            return event.job["total"]  # type: ignore[no-any-return]
    last = tx.last_output(job)
    return 0 if last is None else last["total"]


def claims(
    tx: Transaction,
    owner: str,
    requests: Sequence[ClaimRequest],
    limit: int,
    lease: float,
    turns: FairTurns,
) -> list[Claim]:
    """Claim up to `limit` jobs, in the order of the requests. The tenants take turns; see `core.jobs.fair`."""
    found: list[Claim] = []
    paused = tx.paused()
    if any(request.queue in paused for request in requests):
        # A hint may arrive before the notification that a queue was resumed.
        paused = tx.paused(sure=True)
    for request in requests:
        room = min(request.limit, limit - len(found))
        if room <= 0 or request.queue in paused:
            continue
        if request.concurrency:
            found += _claim_limited(tx, owner, request, room, lease, turns)
            continue
        for i, due in enumerate(_in_turn(tx, request, room, turns)):
            if request.only is not None and due.job.kind not in request.only:
                break
            found.append(claim(tx, due, owner, lease, reserve=i >= request.begin))
    return found


def _claim_limited(
    tx: Transaction, owner: str, request: ClaimRequest, room: int, lease: float, turns: FairTurns
) -> list[Claim]:
    """Claim jobs of kinds with a limit on concurrent jobs. A job whose key is full is blocked: it leaves the index of claims
    until a job with its key is released, so no later claim reads it again.
    """
    found: list[Claim] = []
    while request.kinds and len(found) < room:
        limited = _Limited(tx, request, room - len(found))
        picked = limited.pick(turns)
        for due in picked:
            if request.only is not None and due.job.kind not in request.only:
                return found
            found.append(claim(tx, due, owner, lease, reserve=len(found) >= request.begin))
        limited.block_full(picked)
        if limited.full_kinds:
            kinds = tuple(kind for kind in request.kinds if kind not in limited.full_kinds)
            request = replace(request, kinds=kinds)
        elif not picked and not limited.blocked:
            break
    return found


class _Limited:
    """One round of a claim of kinds with a limit on concurrent jobs."""

    def __init__(self, tx: Transaction, request: ClaimRequest, room: int) -> None:
        self._tx = tx
        self._request = request
        self._room = room
        self._running: dict[str, int] = {}  # by key: held jobs, with those that this round claims
        self._blockable: list[Due] = []  # jobs that do not fit beside those that are before them
        self.full_kinds: set[str] = set()  # their limit is for the whole kind, and is reached
        self.blocked = 0

    def pick(self, turns: FairTurns) -> list[Due]:
        request, room = self._request, self._room
        tx = self._tx
        tx.fresh(request)  # writes the new jobs
        key = request.queue, frozenset(request.kinds)
        turn = turns.get(key)
        slice_ = turn.slice(room, turns.weights)
        while True:
            dues = tx.candidates(request, slice_)
            tenants, room = self._admitted(dues)
            if self.full_kinds:
                return []
            if turns.running is not None:
                read = Counter(due.job.tenant for due in dues)
                cut = {tenant for tenant in tenants if read[tenant] >= slice_.limit(tenant)}
                if _leave_out_excess(tx, tenants, cut, room, turns.running) and slice_.each < MUCH:
                    slice_ = _longer(slice_, room)  # there may be jobs of another kind
                    continue
            if len(tenants) >= slice_.tenants:  # there may be other tenants, so each gets one turn
                room = min(room, len(tenants))
            picked = pick(tenants, turn, slice_, room, frozenset())
            if picked is not None:
                turns.put(key, picked[1])
                return picked[0]
            slice_ = wider(slice_, len(tenants), room)

    def _admitted(self, dues: Sequence[Due]) -> tuple[dict[str, list[Due]], int]:
        """The jobs that may start, by tenant, and how many of them at most."""
        room = self._room
        tenants: dict[str, list[Due]] = {}
        used: Counter[str] = Counter()
        self._blockable = []
        for due in dues:
            key, limit = due.job.concurrency_key, self._request.concurrency.get(due.job.kind)
            if key is not None and limit is not None:
                self._running[key] = due.running
                if key == due.job.kind:
                    # All tenants share it, so how many of its jobs start depends on whose turn it is.
                    room = min(room, max(0, limit - due.running))
                    if due.running >= limit:
                        self.full_kinds.add(key)
                elif due.running + used[key] >= limit:
                    self._blockable.append(due)
                    continue
                used[key] += 1
            tenants.setdefault(due.job.tenant, []).append(due)
        return tenants, room

    def block_full(self, claimed: Sequence[Due]) -> None:
        """Block the jobs whose keys are full now."""
        for due in claimed:
            if due.job.concurrency_key in self._running:
                self._running[due.job.concurrency_key] += 1
        for due in self._blockable:
            key = due.job.concurrency_key
            if key is not None and self._running[key] >= self._request.concurrency[due.job.kind]:
                self._tx.block(due.job)
                self.blocked += 1


def _in_turn(tx: Transaction, request: ClaimRequest, room: int, turns: FairTurns) -> list[Due]:
    """The next `room` jobs of a request."""
    key = request.queue, frozenset(request.kinds)
    turn = turns.get(key)
    fresh = tx.fresh(request)
    slice_ = turn.slice(room, turns.weights)
    while True:
        by_tenant: dict[str, list[Due]] = {}
        for due in tx.candidates(request, slice_):
            by_tenant.setdefault(due.job.tenant, []).append(due)
        cut = {tenant for tenant, jobs in by_tenant.items() if len(jobs) >= slice_.limit(tenant)}
        if fresh:
            _add_fresh(by_tenant, fresh, cut)
        if turns.running is not None and _leave_out_excess(tx, by_tenant, cut, room, turns.running):
            if slice_.each < MUCH:  # there may be jobs of another kind
                slice_ = _longer(slice_, room)
                continue
            cut.clear()
        picked = pick(by_tenant, turn, slice_, room, cut)
        if picked is not None:
            turns.put(key, picked[1])
            return picked[0]
        slice_ = wider(slice_, len(by_tenant), room)


def _longer(slice_: Slice, room: int) -> Slice:
    """A slice with more jobs of each tenant."""
    return slice_._replace(each=min(4 * max(slice_.each, room), MUCH), alone=False)


def _leave_out_excess(
    tx: Transaction,
    by_tenant: dict[str, list[Due]],
    cut: set[str],
    room: int,
    running: RunningLimits,
) -> bool:
    """Leave out the jobs that a limit of running jobs does not allow. Return whether a tenant may start more jobs if more of
    them are read, because those that were read are of kinds at their limits.
    """
    bounds = {
        tenant: {due[0].kind: running(tenant, due[0].kind) for due in jobs}
        for tenant, jobs in by_tenant.items()
    }
    limited = [
        tenant
        for tenant, kinds in bounds.items()
        if any(kind != (None, None) for kind in kinds.values())
    ]
    if not limited:
        return False
    counts = tx.running_counts(limited)
    short = False
    for tenant in limited:
        whole = sum(count for (whose, _), count in counts.items() if whose == tenant)
        allowed: list[Due] = []
        for due in by_tenant[tenant]:
            kind = due[0].kind
            most, of_kind = bounds[tenant][kind]
            if most is not None and whole >= most:
                cut.discard(tenant)  # no other job of it may start
                break
            if of_kind is None or counts[tenant, kind] < of_kind:
                counts[tenant, kind] += 1
                whole += 1
                allowed.append(due)
        else:
            left_out = len(allowed) < len(by_tenant[tenant])
            short = short or (tenant in cut and left_out and len(allowed) < room)
        by_tenant[tenant] = allowed
    return short


def _add_fresh(by_tenant: dict[str, list[Due]], fresh: Sequence[Due], cut: AbstractSet[str]) -> None:
    """Add the new jobs of the transaction. If a tenant may have more stored jobs, leave out those that come after the last
    one that was read.
    """
    for due in fresh:
        jobs = by_tenant.setdefault(due.job.tenant, [])
        if due.job.tenant not in cut or start_order(due.job) < start_order(jobs[-1].job):
            jobs.append(due)
    for tenant in {
        due.job.tenant for due in fresh
    }:  # the sort is stable, and the new jobs were stored last
        by_tenant[tenant].sort(key=lambda due: start_order(due.job))


def renew(
    tx: Transaction, owner: str, held: Sequence[tuple[str, int]], lease: float
) -> list[tuple[str, int]]:
    """Renew leases and return those that are lost. The jobs' versions do not change."""
    lost = []
    for job_id, fence in held:
        job = tx.job(job_id)
        if job is None or (job.owner, job.fence) != (owner, fence) or not job.lease_until:
            lost.append((job_id, fence))
            tx.lost(job_id, fence)
        else:
            tx.change(job, replace(job, lease_until=tx.now + lease, lease_seconds=lease))
    return lost


def void(tx: Transaction, job_ids: Sequence[str], owner: str) -> int:
    """Void the leases of these jobs that owners with this prefix hold. The jobs' versions do not change."""
    voided = 0
    for job_id in job_ids:
        job = tx.job(job_id)
        if job is not None and job.lease_until and (job.owner or "").startswith(owner):
            tx.change(job, replace(job, lease_until=0.0))
            voided += 1
    return voided


def log(tx: Transaction, job_id: str, owner: str, fence: int, lines: Sequence[dict[str, Any]]) -> None:
    job = tx.job(job_id)
    if job is not None and (job.owner, job.fence) == (owner, fence):
        for line in lines:
            text = {name: value for name, value in line.items() if name != "at"}
            tx.add_event(job, "log", {"log": text, "loggedAt": line.get("at", tx.now)})


def pause(tx: Transaction, queue: str, paused: bool) -> None:
    if (queue in tx.paused(sure=True)) != paused:
        tx.pause(queue, paused)
        tx.add_queue_event(queue, paused)


def delete(
    tx: Transaction, job_id: str, version: int | None, *, keep_events: bool = False
) -> Job | Refused | Missing:
    job = tx.job(job_id)
    if job is None:
        return gone(tx, job_id)
    change = Change(job_id=job_id, version=version)
    if version is not None and version != job.version:
        return WrongVersion(job, change, f"the job is at version {job.version}")
    if job.status is Status.PROCESSING or job.held:
        return WrongStatus(job, change, "a worker runs the job: cancel it first")
    parent = tx.job(job.parent) if job.parent is not None else None
    if parent is not None and not parent.status.terminal:
        return WrongStatus(
            job, change, f"its parent {parent.id} still needs it: cancel or delete the parent first"
        )
    for child in job.children:
        running = tx.job(child.job_id)
        if running is not None and not running.status.terminal:
            apply(tx, cancel(running))
    tx.remove(job, keep_events=keep_events)
    return job
