"""Histories: random ones from a seed, and one fault at every operation of a given one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from tests.simulation.app import KINDS
from tests.simulation.faults import MODES, Faults, Mode
from tests.simulation.world import Database, Deed, World

PAUSES = (0.0, 0.001, 0.05, 0.3, 2.0, 15.0)
CALLERS = (
    *KINDS,
    *KINDS,
    "upload",
    "upload",
    "tus",
    "chunked",
    "presigned",
    "cancel",
    "rerun",
    "delete",
    "pause",
)
TROUBLE = ("kill", "freeze", "thaw", "stop", "sleep", "cut", "cut", "fault", "fault", "fault", "outage")
STANDBY = ("replicate", "replicate", "promote")
# Uses every operation of a service with its store within a few seconds, deterministically.
TOUR: tuple[Deed, ...] = (
    ("upload", 0, 1.0),
    ("family", 2, 0.3),
    ("relay", 4, 0.0),
    ("lonely", 3, 0.3),
    ("tus", 6, 0.3),
    ("chunked", 7, 0.3),
    ("presigned", 9, 0.3),
    ("steps", 1, 0.3),
    ("maker", 5, 0.0),
    ("once", 1, 0.0),
    ("slow", 1, 0.3),
    ("cancel", 6, 0.05),
    ("pair", 1, 0.0),
    ("pair", 2, 0.0),
    ("pair", 4, 0.05),
    ("rerun", 0, 2.0),
)

MakeWorld = Callable[[int], World]


def random_history(seed: int) -> list[Deed]:
    """Some histories have no faults but clock changes and stopped services: there every job must succeed."""
    rng = random.Random(seed)
    trouble = rng.choice((("stop", "sleep") * 2, TROUBLE, TROUBLE, TROUBLE + STANDBY))
    deeds = CALLERS + trouble
    length = rng.randint(1, 25)
    history = [("upload", 0, 1.0)] if rng.random() < 0.5 else []
    return history + [(rng.choice(deeds), rng.randint(0, 40), rng.choice(PAUSES)) for _ in range(length)]


def judged(make: MakeWorld, seed: int, deeds: Sequence[Deed]) -> list[str]:
    with make(seed) as world:
        world.act(deeds)
        return world.judge()


def with_one_fault(
    make: MakeWorld, deeds: Sequence[Deed], number: int, mode: Mode, seed: int = 1
) -> tuple[list[str], bool]:
    """The violations when operation `number` of the history fails, and whether that operation was reached."""
    with make(seed) as world:
        world.failed += 1
        world.faults.plan(number, mode)
        world.act(deeds)
        met = bool(world.faults.met)
        return world.judge(), met


def operations(make: MakeWorld, deeds: Sequence[Deed], seed: int = 1) -> int:
    """The number of operations in a history without faults."""
    with make(seed) as world:
        world.act(deeds)
        return world.faults.count


def on(make_database: Callable[[Faults], Database], *names: str) -> MakeWorld:
    return lambda seed: World(seed, make_database, names)


def every_fault(count: int, step: int = 1) -> Iterator[tuple[int, Mode]]:
    for number in range(1, count + 1, step):
        for mode in MODES:
            yield number, mode
