"""Budgets that processes of one machine share exactly: the state is on a board that all of them see.

1. What one process takes, the others see with their next `take`: the sum is exact, whatever becomes of any of them.
2. Nobody waits for another: who does not get the board tries again a millisecond later, and keeps what it heard till
   then. What nobody waits to hear is kept back for a while anyway.
3. A caller in a hurry is granted several at once, to be sent within a moment; what is not sent by then is void. So
   the lock is not taken for each request, and the sum stays exact: the moment is shorter than the jitter that a
   documented limit is spent with anyway.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bide.client.budgets.board import LARGEST, Board, this_boot
from bide.core.budget import Budget, Limit, State
from bide.core.errors import SetupError
from bide.core.limits import telling

MOMENT = 0.02  # within which what was granted is sent
MOST = 64  # granted at once
TRY_AGAIN = 0.001
FEW, MOST_PENDING = 16, 256  # answers kept back when there is nothing to take, and in any case
UNKNOWN = (-1, -1)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(State).decode


class FileBudgets:
    """All in one folder, which belongs to this user alone."""

    def __init__(self, folder: Path, rng: random.Random | None = None) -> None:
        self._folder = folder
        self._rng = rng or random.Random()
        self._purses: dict[str, FilePurse] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SetupError(
                f"the folder {folder} for shared budgets cannot be made: {error.strerror}"
            ) from error

    def open(self, name: str, limit: Limit | None = None, first: Budget | None = None) -> FilePurse:
        """`first` is what a budget that is new begins with."""
        purse = self._purses.get(name)
        if purse is None:
            if not (name.isascii() and name.isalnum()):
                raise ValueError(f"{name!r} cannot name a budget: letters and digits only")
            budget = first or Budget(limit, rng=self._rng)
            purse = self._purses[name] = FilePurse(self._board(name, budget.state), budget, limit)
        return purse

    def _board(self, name: str, state: State) -> Board:
        path = self._folder / f"{name}-{this_boot()}.budget"
        try:
            for old in self._folder.glob(f"{name}-*.budget.*"):
                if not old.name.startswith(path.name):  # of another start of the machine
                    old.unlink(missing_ok=True)
            return Board(path, _encode(state), state.next)
        except OSError as error:
            raise SetupError(f"the shared budget {path} cannot be used: {error.strerror}") from error

    def close(self) -> None:
        for purse in self._purses.values():
            purse.close()
        self._purses.clear()


class FilePurse:
    """This process's access to one shared budget."""

    def __init__(self, board: Board, budget: Budget, limit: Limit | None) -> None:
        self._board = board
        self._budget = budget
        self._moment = min(MOMENT, limit.per / 100) if limit and limit.requests < 1e9 else MOMENT
        self._version = UNKNOWN  # of the state that self._budget has
        self._hand = 0  # granted and not sent yet
        self._drawn = -math.inf  # when that was
        self._under_way: list[float] = []  # when those were granted that were sent and not answered yet
        self._void_from = -math.inf
        self._closed = False
        self._overdue = False  # there is news that must not wait
        self._hurry = 1  # how many to be granted at once
        self._pending: list[tuple[float, int, Mapping[str, str], float]] = []

    def ready(self, now: float, cost: float = 1.0) -> float:
        if self._hand and now < self._void_from:
            return now
        if self._overdue and not self._change():
            return now + TRY_AGAIN
        return self._board.moment

    def take(self, now: float, cost: float = 1.0) -> float:
        if self._hand and now < self._void_from and cost == 1.0:
            self._hand -= 1
            self._under_way.append(self._drawn)
            return now
        kept = self._hand or self._overdue or len(self._pending) >= FEW
        if not kept and (at := self._board.moment) > now:
            return at
        if self._hand == 0 and now < self._void_from:
            self._hurry = min(2 * self._hurry, MOST)
        else:
            self._hurry = max(1, self._hurry // 4)
        at = now + TRY_AGAIN
        granted = 0

        def draw(budget: Budget) -> None:
            nonlocal at, granted
            at = budget.take(now, cost)
            if at <= now and cost == 1.0:
                most = min(self._hurry, self._bearable(now))
                while granted + 1 < most and budget.take(now) <= now:
                    granted += 1

        if not self._change(draw):
            return now + TRY_AGAIN
        if at <= now:
            self._under_way.append(now)
        if at <= now and cost == 1.0:
            self._hand, self._drawn, self._void_from = granted, now, now + self._moment
        return at

    def _bearable(self, now: float) -> int:
        """At most what the rate gives in that moment anyway, so that others get their share."""
        rate = self._budget.rate(now)
        return MOST if rate is None else int(rate * self._moment)

    def heard(self, now: float, status: int, headers: Mapping[str, str], wall: float) -> None:
        told = telling(headers)
        self._pending.append((now, status, told or {}, wall))
        known = self._budget.state
        # News only when nothing depends on each single answer.
        waited_for = not known.met or known.strikes or known.meters
        if (
            told is not None
            or waited_for
            or status in (0, 429, 503)
            or len(self._pending) >= MOST_PENDING
        ):
            self._overdue = not self._change()

    def settle(self) -> None:
        """Tells what was kept back; to be called now and then by who may fall silent."""
        if self._pending or self._hand:
            self._change()

    def rate(self, now: float) -> float | None:
        self._load()
        return self._budget.rate(now)

    def dump(self, now: float) -> dict[str, Any]:
        self._load()
        return self._budget.dump(now)

    def close(self) -> None:
        for _ in range(100):
            if not (self._pending or self._hand) or self._change():
                break
            time.sleep(TRY_AGAIN)
        self._load()
        self._closed = True
        self._board.close()

    def _change(self, more: Callable[[Budget], None] | None = None) -> bool:
        """Tells the budget what this process knows, and does `more` with it; False when that has not come about."""
        board = self._board
        if not board.lock():
            return False
        try:
            budget = self._load()
            self._version = UNKNOWN  # unless all of this comes true
            self._tell(budget)
            if more is not None:
                more(budget)
            data = _encode(budget.state)
            assert len(data) <= LARGEST
            board.write(data, budget.state.next)
            version = board.version
        finally:
            true = board.unlock()
        self._hand = 0
        if true:
            self._version = version
            del self._under_way[: len(self._pending)]
            self._pending.clear()
            self._overdue = False
        return true

    def _tell(self, budget: Budget) -> None:
        """What was granted and not sent, and what was heard. A budget takes each answer for that to the first that is
        under way, but what a dead process had under way is never answered: so ours is made the first."""
        sent = budget.state.sent
        for _ in range(self._hand):
            if self._drawn in sent:
                sent.remove(self._drawn)
            sent.append(self._drawn)
        if self._hand:
            budget.unspend(self._hand)
        ours = iter(self._under_way)
        for heard in self._pending:
            at = next(ours, None)
            if at is not None:
                if at in sent:
                    sent.remove(at)
                sent.insert(0, at)
            budget.heard(*heard)

    def _load(self) -> Budget:
        """The newest state; the last that was seen, when it is closed."""
        if self._closed:
            return self._budget
        version = self._board.version
        if version != self._version:
            self._budget.state = _decode(self._board.read())
            self._version = version
        return self._budget
