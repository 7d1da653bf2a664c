"""Honest advice: whether a budget can carry a load, and what would help when it cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from bide.core.hazard import Table
from bide.core.plan import Plan

AMPLE = 1.25  # times the rate that is needed is a limit that leaves room
HIGHEST_PRICE = 2.0**24


class Load(msgspec.Struct, frozen=True):
    """Jobs of one kind: how many are waited for at a time, and how long they take."""

    waiting: float
    table: Table


class Advice(msgspec.Struct, frozen=True, rename="camel"):
    """Rates are in requests a second, delays in seconds."""

    needed: float  # what asking at the best moments would take
    allowed: float | None  # what the budget gives; None: nothing limits it
    delay: float  # to expect with what is allowed
    wanted: float  # delay with what is needed
    ask_for: float | None  # requests a minute that would be enough; None: it is enough already
    batched: float | None  # delay to expect when one request asks about `batch` jobs; None: no gain
    batch: int = 1

    @property
    def enough(self) -> bool:
        return self.ask_for is None

    def __str__(self) -> str:
        if self.ask_for is None:
            return f"the budget is enough: about {_plain(60 * self.needed)} requests a minute are needed"
        text = (
            f"the budget is too small: {_plain(60 * (self.allowed or 0.0))} requests a minute are allowed, "
            f"{_plain(60 * self.needed)} are needed. Expect a delay of about {_plain(self.delay)} s instead of "
            f"{_plain(self.wanted)}. Ask the vendor for {self.ask_for:.0f} a minute"
        )
        if self.batched is not None:
            text += f", or ask about {self.batch} jobs in one request: about {_plain(self.batched)} s"
        return text


def _plain(number: float) -> str:
    """Three digits that count; no powers of ten."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def advise(loads: Sequence[Load], allowed: float | None, price: float, batch: int = 10) -> Advice:
    """What to expect of a budget, and what to ask the vendor for.

    By Little's law a kind of which W jobs are waited for brings W / (mean duration) jobs a second; a plan says how many
    requests each takes at a price. When that is more than is allowed, the price rises until it fits.
    """
    needed, wanted = _outlook(loads, price)
    if allowed is None or needed <= allowed:
        return Advice(needed, allowed, wanted, wanted, None, None)
    delay = _squeezed(loads, allowed, price)
    batched = _squeezed(loads, allowed * batch, price) if batch > 1 else delay
    return Advice(
        needed=needed,
        allowed=allowed,
        delay=delay,
        wanted=wanted,
        ask_for=math.ceil(60.0 * AMPLE * needed),
        batched=batched if batched < 0.9 * delay else None,
        batch=batch,
    )


def _outlook(loads: Sequence[Load], price: float) -> tuple[float, float]:
    """Requests a second, and the mean delay of a job."""
    rate = delay = jobs = 0.0
    for load in loads:
        requests, late = Plan(load.table, price).outlook(load.table)
        flow = load.waiting / max(1e-9, load.table.mean() + late)
        rate += flow * requests
        delay += flow * late
        jobs += flow
    return rate, delay / jobs if jobs else 0.0


def _squeezed(loads: Sequence[Load], allowed: float, price: float) -> float:
    """The delay at the price at which the rate fits what is allowed."""
    while price < HIGHEST_PRICE:
        rate, delay = _outlook(loads, price)
        if rate <= allowed:
            return delay
        price *= math.sqrt(2.0)
    return delay
