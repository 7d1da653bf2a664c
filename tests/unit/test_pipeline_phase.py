"""The state machine of an export: a table that loses nothing, whatever happens in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.client.apis.answers import Ref
from bide.core.errors import ErrorInfo
from bide.pipeline.run.phase import TRANSITIONS, DownloadedFile, Export, Phase, PhaseEvent, advance

NEW = Export(key="k", name="gradebook course=1", dataset="gradebook", output="out.csv")
KNOWN: dict[PhaseEvent, dict[str, object]] = {
    PhaseEvent.ACCEPTED: {"ref": Ref("job1"), "submitted_at": 1.0},
    PhaseEvent.FETCHED: {"files": (DownloadedFile("00000", 3, "ab"),)},
    PhaseEvent.REFUSED: {"error": ErrorInfo("NO", "no")},
}


@given(st.lists(st.sampled_from(PhaseEvent), max_size=30))
def test_whatever_happens_what_is_known_fits_the_phase(events: list[PhaseEvent]) -> None:
    export = NEW
    sent = 0
    for event in events:
        if (export.phase, event) not in TRANSITIONS:
            with pytest.raises(ValueError, match="does not allow the event"):
                advance(export, event)
            continue
        sent += (export.phase, event) == (Phase.NEW, PhaseEvent.SEND)
        export = advance(export, event, **KNOWN.get(event, {}))
        assert export.attempt == sent  # a submission key is never used for another job
        has_job = export.phase in (Phase.INITIATED, Phase.READY, Phase.RESOLVED, Phase.PUBLISHED)
        assert not has_job or export.ref is not None
        assert (export.phase in (Phase.RESOLVED, Phase.PUBLISHED)) == bool(export.files)
        assert (export.phase is Phase.FAILED) == (export.error is not None)
        assert export.phase is not Phase.NEW or export.ref is None


def test_every_phase_can_be_reached_and_only_published_needs_nothing_more() -> None:
    reached = {Phase.NEW}
    for _ in Phase:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(Phase)
    onward = {Phase.NEW, Phase.INITIATING, Phase.INITIATED, Phase.READY, Phase.RESOLVED}
    for phase in onward:
        assert any(
            before is phase and after is not Phase.NEW for (before, _), after in TRANSITIONS.items()
        )


def test_a_refusal_of_what_was_fetched_makes_no_sense() -> None:
    assert (Phase.RESOLVED, PhaseEvent.REFUSED) not in TRANSITIONS
