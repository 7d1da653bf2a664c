"""The counts of queues are what counting would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bide.server.store.sqlite.queue_counts import FEW, DueTimes, Move, QueueCount, QueueCounts

instants = st.sampled_from([float(i) for i in range(12)])


def counted(jobs: list[tuple[str, float]], now: float) -> dict[str, QueueCount]:
    found = {}
    for queue in {queue for queue, _ in jobs}:
        waiting = [due for name, due in jobs if name == queue and due <= now]
        scheduled = [due for name, due in jobs if name == queue and due > now]
        found[queue] = QueueCount(len(waiting), len(scheduled), min(waiting, default=None))
    return found


@given(
    st.lists(st.tuples(st.sampled_from("ab"), instants), max_size=8),
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(st.integers(0, 30), st.none() | instants, st.sampled_from("ab")), max_size=6
            ),
            st.sampled_from([0, 0, 1, 4]),
        ),
        max_size=15,
    ),
)
def test_counts_are_those_of_the_jobs(
    jobs: list[tuple[str, float]],
    rounds: list[tuple[list[tuple[int, float | None, str]], int]],
) -> None:
    jobs, now = list(jobs), 0.0
    counts = QueueCounts()
    counts.load(jobs, now)
    for changes, seconds in rounds:
        moves: list[Move] = []
        for which, after, queue in changes:
            if which < len(jobs):
                name, before = jobs.pop(which)
                moves.append((name, before, after))
                if after is not None:
                    jobs.append((name, after))
            elif after is not None:
                moves.append((queue, None, after))
                jobs.append((queue, after))
        counts.moved(moves, now)
        assert counts.read(now) == counted(jobs, now)
        now += seconds
        expected = counted(jobs, now)
        for queue in "ab":
            assert counts.has_waiting(queue, now) == (queue in expected and expected[queue].waiting > 0)
        assert counts.read(now) == expected


def test_many_become_due_at_once() -> None:
    jobs = [("video", float(i % 700)) for i in range(3000)]
    counts = QueueCounts()
    counts.load(jobs, -1.0)
    for now in (-1.0, 0.0, 350.0, 350.0, 699.0):
        assert counts.read(now) == counted(jobs, now)


def test_what_left_out_of_order_takes_no_memory_for_ever() -> None:
    """One old job of low priority waits while many others come and go."""
    dues = DueTimes()
    dues.add(0.0)
    for i in range(1, 100 * FEW):
        dues.add(float(i))
        dues.remove(float(i))
    assert (dues.size, dues.first) == (1, 0.0)
    assert len(dues._heap) <= 2 * FEW + 2


def test_a_clock_that_goes_back_moves_nothing_back() -> None:
    counts = QueueCounts()
    counts.load([("video", 5.0)], 0.0)
    assert counts.read(10.0) == counts.read(0.0) == {"video": QueueCount(1, 0, 5.0)}
    counts.moved([("video", 5.0, None)], 0.0)
    assert counts.read(0.0) == {}


def test_removing_what_is_not_there_does_no_harm() -> None:
    counts = QueueCounts()
    counts.moved([("video", 1.0, None), ("video", None, 2.0), ("video", 9.0, None)], 3.0)
    assert set(counts.read(3.0)) <= {"video"}
