"""Whether a budget is enough for a number of jobs, and what would help if it is not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from bide.core.pacing.hazard import SurvivalCurve
from bide.core.pacing.plan import Plan

AMPLE = 1.25  # a limit that leaves room, as a multiple of the rate that is needed
HIGHEST_PRICE = 2.0**24


class Load(msgspec.Struct, frozen=True):
    """Jobs of one kind: how many wait at the same time, and how long they take."""

    waiting: float
    table: SurvivalCurve


class Advice(msgspec.Struct, frozen=True, rename="camel"):
    """Rates are in requests per second, delays in seconds."""

    needed: float  # to poll at the best times
    allowed: float | None  # by the budget; None: unlimited
    delay: float  # expected with the allowed rate
    wanted: float  # delay with the needed rate
    ask_for: float | None  # requests per minute that would be enough; None: the budget is enough
    batched: float | None  # expected delay if one request polls `batch` jobs; None: no gain
    batch: int = 1

    @property
    def enough(self) -> bool:
        return self.ask_for is None

    def __str__(self) -> str:
        if self.ask_for is None:
            return (
                f"the budget is enough: about {_plain(60 * self.needed)} requests per minute are needed"
            )
        text = (
            f"the budget is too small: {_plain(60 * (self.allowed or 0.0))} requests per minute are allowed, "
            f"{_plain(60 * self.needed)} are needed. Expect a delay of about {_plain(self.delay)} s instead of "
            f"{_plain(self.wanted)} s. Ask the vendor for {self.ask_for:.0f} requests per minute"
        )
        if self.batched is not None:
            text += f", or poll {self.batch} jobs per request: about {_plain(self.batched)} s"
        return text


def _plain(number: float) -> str:
    """Format with three significant digits and no exponent."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def advise(loads: Sequence[Load], allowed: float | None, price: float, batch: int = 10) -> Advice:
    """Return the delay to expect with a budget, and the limit to ask the vendor for.

    By Little's law, W waiting jobs of a kind mean W / (mean duration) jobs per second; a plan gives the requests per job
    at a price. If that is more than allowed, the price rises until it fits.
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
    """Return the requests per second, and the mean delay of a job."""
    rate = delay = jobs = 0.0
    for load in loads:
        requests, late = Plan(load.table, price).outlook(load.table)
        flow = load.waiting / max(1e-9, load.table.mean() + late)
        rate += flow * requests
        delay += flow * late
        jobs += flow
    return rate, delay / jobs if jobs else 0.0


def _squeezed(loads: Sequence[Load], allowed: float, price: float) -> float:
    """Return the delay at the price at which the rate fits what is allowed."""
    while price < HIGHEST_PRICE:
        rate, delay = _outlook(loads, price)
        if rate <= allowed:
            return delay
        price *= math.sqrt(2.0)
    return delay
