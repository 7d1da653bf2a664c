"""The retry loop: what is retried, how long, and by how many callers at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from bide.client.apis import Crowded, Throttled
from bide.client.http.retrying import LONGEST_PAUSE, Retrying, RetryPolicy
from bide.core.errors import ServiceError, ServiceUnreachable, UnusableService


class Hours:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.at = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds
        await asyncio.sleep(0)


def refused(status: int, **problem: object) -> ServiceError:
    return ServiceError(status, {"code": f"http-{status}", **problem})


def fails(*errors: Exception) -> Callable[[], Awaitable[str]]:
    left = list(errors)

    async def operation() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return operation


def retrying(hours: Hours, policy: RetryPolicy | None = None) -> Retrying:
    return Retrying(policy or RetryPolicy(), hours, random.Random(1), "host")


GONE = ServiceUnreachable("gone")


@pytest.mark.parametrize(
    "error", [GONE, refused(500), refused(503), refused(408), refused(425), refused(429)]
)
async def test_a_failure_that_may_pass_is_retried(error: Exception) -> None:
    assert await retrying(Hours()).run(fails(error, error)) == "done"


@pytest.mark.parametrize(
    "error",
    [refused(400), refused(404), refused(409), UnusableService("certificate-not-trusted", "no")],
)
async def test_any_other_failure_is_raised_at_once(error: Exception) -> None:
    hours = Hours()
    with pytest.raises(type(error)):
        await retrying(hours).run(fails(error))
    assert hours.slept == []


async def test_an_unsafe_request_is_repeated_only_if_nothing_was_done() -> None:
    assert await retrying(Hours()).run(fails(refused(503), refused(429)), safe=False) == "done"
    for error in (GONE, refused(500), refused(502)):
        with pytest.raises(type(error)):
            await retrying(Hours()).run(fails(error), safe=False)


async def test_the_last_error_is_raised_after_the_last_try_and_429_is_not_counted() -> None:
    policy = RetryPolicy(tries=3)
    assert await retrying(Hours(), policy).run(fails(GONE, refused(429), GONE)) == "done"
    with pytest.raises(ServiceUnreachable):
        await retrying(Hours(), policy).run(fails(GONE, GONE, GONE))


async def test_retry_after_is_obeyed_up_to_a_limit() -> None:
    hours = Hours()
    await retrying(hours).run(fails(refused(503, retryAfter=7.0), refused(503, retryAfter=1e9)))
    first, second = hours.slept
    assert 7.0 <= first <= 7.7
    assert LONGEST_PAUSE <= second <= 1.1 * LONGEST_PAUSE


async def test_patience_ends_and_progress_starts_it_again() -> None:
    hours = Hours()
    made = Retrying(
        RetryPolicy(base=10.0, cap=10.0, least=10.0, patience=25.0),
        hours,
        random.Random(1),
        exhausted=lambda error, seconds: RuntimeError(f"{error} for {seconds:.0f} s"),
    )
    with pytest.raises(RuntimeError, match="gone for 30 s"):
        await made.run(fails(*[GONE] * 9))

    async def crawls() -> str:
        made.progress()
        return await slow()

    slow = fails(*[GONE] * 9)
    assert await made.run(crawls) == "done"


async def test_throttling_and_too_many_jobs_are_waited_out_without_counting() -> None:
    errors = [Throttled(403, "slow down"), Crowded(429, "too many jobs")] * 5
    assert await retrying(Hours(), RetryPolicy(tries=1)).run(fails(*errors)) == "done"


async def test_a_host_that_never_answered_is_given_up() -> None:
    closed = ServiceUnreachable("closed")
    nobody = ServiceUnreachable("refused")
    nobody.connected = False
    policy = RetryPolicy(needs_first_answer=True)
    with pytest.raises(ServiceUnreachable, match="refused"):
        await retrying(Hours(), policy).run(fails(nobody))
    with pytest.raises(ServiceUnreachable, match="closed"):
        await retrying(Hours(), policy).run(fails(*[closed] * 9))
    assert await retrying(Hours(), policy).run(fails(refused(503), *[nobody] * 9)) == "done"


async def test_a_problem_document_overrides_its_status_only_if_the_policy_says_so() -> None:
    final, passing = refused(503, retryable=False), refused(409, retryable=True)
    obeys = RetryPolicy(obeys_problem=True, final=frozenset((507,)))
    assert obeys.retries(passing) and not obeys.retries(final) and not obeys.retries(refused(507))
    assert RetryPolicy().retries(final) and not RetryPolicy().retries(passing)


async def test_one_caller_at_a_time_tries_a_host_that_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hours = Hours()
    made = retrying(hours, RetryPolicy(alone=3, warn_at=3))
    trying = most = tries = 0

    async def operation() -> int:
        nonlocal trying, most, tries
        tries += 1
        trying += 1
        if 20 < tries < 30:
            most = max(most, trying)
        await asyncio.sleep(0)
        trying -= 1
        if tries < 30:
            raise GONE
        return tries

    assert len(await asyncio.gather(*(made.run(operation) for _ in range(10)))) == 10
    assert most == 1
    assert caplog.text.count("trying again") == 1
    assert "host answers again" in caplog.text
