"""What an answer is evidence of, in the schedule's terms: how long a job took, how much is left, when to ask again.

An API's times are read against its own clock, for that may be wrong.
"""

from __future__ import annotations

from bide.client.apis import Answer, Seen
from bide.client.apis.values import header, instant
from bide.client.polling.kinds import Report, by_position
from bide.client.polling.planned_job import Waited

LONGEST_ADVICE = 300.0  # an absurd Retry-After is not obeyed beyond this
WORTH_TELLING = 5.0  # seconds between two looks, above which a time of the API's own says more


def advice(seen: Seen) -> float | None:
    told = seen.retry_after
    return None if told is None or told <= 0 else min(told, LONGEST_ADVICE)


def clock_of(answer: Answer) -> float | None:
    """What the API's own clock showed, in epoch seconds. Reading a date takes as long as all the rest of an answer."""
    return instant(header(answer.headers, "Date"))


def took(waited: Waited, now: float, seen: Seen, answer: Answer) -> float | None:
    """How long it took by the API's own times."""
    age = now - waited.born
    if seen.finished_at is None or age - waited.asked < WORTH_TELLING:
        return None
    clock = clock_of(answer)
    if clock is None or clock - seen.finished_at < -WORTH_TELLING:  # not from the future
        return None
    return age - max(0.0, clock - seen.finished_at)


def report(waited: Waited, now: float, seen: Seen, answer: Answer) -> Report | None:
    if seen.remaining is not None and seen.remaining > 0:
        return Report("remaining", seen.remaining)
    if seen.eta is not None:
        clock = clock_of(answer)
        if clock is not None and seen.eta > clock:
            return Report("eta", seen.eta - clock)
    if seen.progress is not None:
        return waited.progressed(now - waited.born, 100.0 * seen.progress)
    if seen.position is not None:
        return by_position(float(seen.position))
    return None
