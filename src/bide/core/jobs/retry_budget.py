"""Decides whether a kind may retry a job now. Pure: time is an argument.

A kind earns retries with first attempts: `ratio` of a retry each. What it has earned loses value over about WINDOW seconds,
so that a quiet day does not pay for a storm of retries. In addition, `minimum` retries per minute are always allowed, so
that kinds with few jobs can retry. So in any T seconds, at most `ratio` · (first attempts) + `minimum` · (1 + T / 60)
retries start, and those that were earned up to WINDOW seconds before.
"""

from __future__ import annotations

import math

import msgspec

WINDOW = 60.0  # seconds


class RetryBudget(msgspec.Struct, frozen=True):
    """The settings of a kind."""

    ratio: float = 0.2
    minimum: float = 60.0  # retries per minute


class RetryBudgetState(msgspec.Struct, frozen=True):
    """The stored state of the budget of a kind, which all processes share."""

    earned: float = 0.0
    spare: float = 0.0  # of the minimum
    at: float = 0.0
    waiting: bool = False  # whether retries wait for it, so that later ones wait behind them


def deposited(
    state: RetryBudgetState, budget: RetryBudget, first_attempts: int, now: float
) -> RetryBudgetState:
    """The state at this time, after these first attempts."""
    passed = max(0.0, now - state.at)
    return RetryBudgetState(
        state.earned * math.exp(-passed / WINDOW) + budget.ratio * first_attempts,
        min(budget.minimum, state.spare + budget.minimum * passed / 60.0),
        max(state.at, now),
        state.waiting,
    )


def spent(state: RetryBudgetState) -> RetryBudgetState | None:
    """The state after one retry; None if the budget does not allow it."""
    if state.earned >= 1.0:
        return msgspec.structs.replace(state, earned=state.earned - 1.0)
    if state.spare >= 1.0:
        return msgspec.structs.replace(state, spare=state.spare - 1.0)
    return None


def available(state: RetryBudgetState) -> int:
    """How many retries are allowed now."""
    return math.floor(state.earned) + math.floor(state.spare)
