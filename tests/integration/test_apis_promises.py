"""What a description must be able to say, and what users of other pollers ask for: each has a test, named here.

The table is checked, so that it does not name what is no longer there. What had no test elsewhere has one below.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.errors import WaitTimeout
from tests.integration.api_vendors import KNOWHERE, REPLICATE
from tests.integration.replay import Replay, play, said
from tests.unit.fake_service import HTML_502

ROOT = Path(__file__).parents[2]
REPLAY, DIFFICULT = "tests/integration/test_apis_replay.py", "tests/integration/test_apis_difficult.py"
DAYS, HERE = "tests/integration/test_waiting_bad_days.py", "tests/integration/test_apis_promises.py"
FORM, READING = "tests/unit/test_apis_form.py", "tests/unit/test_apis_reading.py"
SHIPPED, CALLS = "tests/unit/test_apis_shipped.py", "tests/unit/test_apis_calls.py"
LEDGER, AUTH = "tests/acceptance/test_wait_ledger.py", "tests/integration/test_apis_auth.py"

PROMISES = {
    # finding the job
    "from a header, a body path, a template or GraphQL": (REPLAY, "test_happy"),
    "relative URLs": (FORM, "test_docling_and_unstructured_by_long_poll_and_relative_location"),
    "steps after create": (DIFFICULT, "test_salesforce_has_pages_by_a_locator_and_three_result_sets"),
    "named by a person, again": (REPLAY, "test_another_process_finds_the_job_by_what_was_printed"),
    # reading state
    "the HTTP code itself": (SHIPPED, "test_azure_is_read_by_the_kind_of_address_it_gave"),
    "words without case": (READING, "test_words_are_compared_without_case_and_spaces"),
    "a separate outcome field, or counts": (DIFFICULT, "test_an_outcome_that_is_only_in_the_counts"),
    "an error inside a success": (READING, "test_an_error_or_a_list_of_errors_inside_of_a_success"),
    "partial success": (DIFFICULT, "test_an_incomplete_answer_is_a_partial_success"),
    "a cancel in two phases": (REPLAY, "test_cancelled"),
    "a grace time for a 404": (REPLAY, "test_not_there_yet_and_gone"),
    "a 429 distinguished by its body": (CALLS, "test_the_two_kinds_of_429_of_sync_so"),
    # an unknown word
    "neither success nor failure": (SHIPPED, "test_an_unknown_word_is_neither_success_nor_failure"),
    "reported once": (REPLAY, "test_odd"),
    "ends at the deadline": (
        HERE,
        "test_a_word_that_nobody_knows_is_polled_until_the_deadline_and_no_longer",
    ),
    # odd answers
    "an HTML 502, half a document, an empty 200": (REPLAY, "test_odd"),
    # progress and results
    "percent, counts": (REPLAY, "test_happy"),
    "a position, or none": (READING, "test_progress_is_a_share_or_nothing"),
    "signed and expiring": (
        "tests/integration/test_client_ledger.py",
        "test_an_address_that_has_expired_meanwhile_is_asked_for_anew",
    ),
    "paged": (DIFFICULT, "test_pages_that_are_lists_become_one_list"),
    "several": (DIFFICULT, "test_salesforce_has_pages_by_a_locator_and_three_result_sets"),
    # scale
    "batch by ids, or a list": (REPLAY, "test_many_in_one_request"),
    "poll hints": (READING, "test_advice_when_to_ask_again"),
    "cost per call": (
        "tests/unit/test_budget.py",
        "test_a_bucket_of_costs_is_spent_by_what_requests_cost",
    ),
    "the limit of requests": (REPLAY, "test_throttled"),
    "the limit of concurrent jobs": (
        DIFFICULT,
        "test_a_limit_of_jobs_at_once_is_kept_without_anybody_waiting",
    ),
    # auth
    "from a variable, a file, a command": (AUTH, "test_each_kind_from_each_place"),
    "never stored or printed": (AUTH, "test_no_command_shows_a_secret_even_with_its_traceback"),
    # what users ask for
    "faster than every 30 s without hammering": (
        "tests/unit/test_lab.py",
        "test_adaptive_meets_no_refusal_and_no_peer_is_both_faster_and_more_sparing",
    ),
    "Retry-After obeyed by all at once": (DAYS, "test_one_429_pauses_all_and_one_goes_first_afterwards"),
    "one bad poll does not kill the wait": (DAYS, "test_a_failed_poll_backs_off_and_goes_on"),
    "unknown terminal words do not hang": (
        HERE,
        "test_a_word_that_nobody_knows_is_polled_until_the_deadline_and_no_longer",
    ),
    "resume in another process": (
        LEDGER,
        "test_after_a_kill_all_jobs_end_and_no_reported_one_is_reported_again",
    ),
    "progress right after a resume": (LEDGER, "test_what_was_known_is_shown_before_anybody_answers"),
    "cancel on timeout only when asked": (HERE, "test_a_timeout_cancels_only_when_that_is_asked_for"),
    "a failed poll cancels nothing": (HERE, "test_polls_that_fail_cancel_nothing"),
    "a limit on submits is none on polls": (DAYS, "test_a_limit_for_submissions_alone_is_kept"),
    "batch status calls": (REPLAY, "test_many_in_one_request"),
    "an estimate from history": (
        "tests/unit/test_schedule.py",
        "test_requests_fall_as_durations_become_known",
    ),
}


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_a_test(promise: str) -> None:
    file, name = PROMISES[promise]
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay() as running:
        yield running


def account(server: Replay, name: str) -> AsyncClient:
    return AsyncClient(server.url, "some-key", api=name, timing=Timing(200.0))


async def test_a_word_that_nobody_knows_is_polled_until_the_deadline_and_no_longer(
    server: Replay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    play(server, KNOWHERE, said(KNOWHERE.odd))
    async with account(server, "knowhere") as client:
        job = await client.submit("", {})
        with pytest.raises(WaitTimeout):
            await job.result(timeout=0.5)  # a hundred seconds by its clock
        asked = len(server.bodies_of(KNOWHERE.ask))
    assert asked > 2
    assert len(server.bodies_of(KNOWHERE.ask)) == asked
    assert (
        caplog.text.count(
            "has the status 'hibernating', which the description of knowhere does not have"
        )
        == 1
    )


@pytest.mark.parametrize("wanted", [False, True])
async def test_a_timeout_cancels_only_when_that_is_asked_for(wanted: bool, server: Replay) -> None:
    assert REPLICATE.cancel is not None
    play(server, REPLICATE, said(REPLICATE.live))
    server.tell(REPLICATE.cancel, REPLICATE.cancel_answer)
    async with account(server, "replicate") as client:
        job = await client.submit("k", {})
        with pytest.raises(WaitTimeout):
            await job.result(timeout=0.2, cancel_on_timeout=wanted)
    assert len(server.bodies_of(REPLICATE.cancel)) == int(wanted)


async def test_polls_that_fail_cancel_nothing(server: Replay) -> None:
    assert REPLICATE.cancel is not None
    play(server, REPLICATE, HTML_502)
    server.tell(REPLICATE.cancel, REPLICATE.cancel_answer)
    async with account(server, "replicate") as client:
        job = await client.submit("k", {})
        with pytest.raises(WaitTimeout):
            await job.result(timeout=0.5)
    assert len(server.bodies_of(REPLICATE.ask)) > 2
    assert server.bodies_of(REPLICATE.cancel) == []
