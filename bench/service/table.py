"""The lines of the report: a figure and its limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Line:
    what: str
    figure: float
    sense: Literal["≥", "≤"]
    bar: float
    unit: str = "×"
    detail: str = ""
    not_run: bool = False  # a program that this line needs is missing

    @property
    def holds(self) -> bool:
        return self.figure >= self.bar if self.sense == "≥" else self.figure <= self.bar


def not_run(what: str, reason: str) -> Line:
    """A line without a figure. It fails if every part is required."""
    return Line(f"{what}: not run", 1, "≤", 0, "", reason, not_run=True)


def show(lines: Sequence[Line], *, required: bool = False) -> str:
    widest = max((len(line.what) for line in lines), default=0)
    rows = []
    for line in lines:
        figure = f"{line.figure:.3g}" if line.figure < 1000 else f"{line.figure:.0f}"
        verdict = "holds" if line.holds else "FAILS"
        if line.not_run and not required:
            verdict = "NOT RUN"
        rows.append(
            f"{line.what:<{widest}}  {figure:>6} {line.unit:<6} {line.sense} {line.bar:<5g} {verdict}  {line.detail}"
        )
    return "\n".join(row.rstrip() for row in rows)


def report(lines: Sequence[Line], *, required: bool = False) -> int:
    """Print the lines and how many are within their limits. Return the exit code. `required`: a line that could not be
    run fails.
    """
    print(f"\n{show(lines, required=required)}")
    judged = [line for line in lines if required or not line.not_run]
    held = sum(line.holds for line in judged)
    left_out = len(lines) - len(judged)
    print(f"\n{held} of {len(judged)} lines hold" + (f", {left_out} not run" if left_out else ""))
    return 0 if held == len(judged) else 1
