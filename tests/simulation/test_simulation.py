"""Thousands of histories: whatever happens in whatever order, nothing is lost, told twice or repeated."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.simulation.world import KINDS, World

Deed = tuple[str, int, float]

deeds = st.lists(
    st.tuples(
        st.sampled_from(
            [*KINDS, *KINDS, "cancel", "rerun", "kill", "freeze", "thaw", "pause", "cut", "cut"]
        ),
        st.integers(0, 40),
        st.sampled_from([0.0, 0.001, 0.05, 0.3, 2.0, 15.0]),
    ),
    max_size=25,
)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    derandomize=True,
)
@given(seed=st.integers(0, 2**32), deeds=deeds)
def test_any_history(seed: int, deeds: list[Deed]) -> None:
    with World(seed) as world:
        world.act(deeds)
        assert world.judge() == []


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> list[tuple[object, ...]]:
        with World(7) as world:
            world.act([("steps", 1, 0.05), ("family", 2, 0.05), ("kill", 0, 0.3), ("cut", 9, 2.0)])
            world.judge()
            # Ids are random by design; all the rest is not.
            return world.database.execute("SELECT id, type, at FROM events").fetchall()

    assert history() == history()
