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

    @property
    def holds(self) -> bool:
        return self.figure >= self.bar if self.sense == "≥" else self.figure <= self.bar


def show(lines: Sequence[Line]) -> str:
    widest = max((len(line.what) for line in lines), default=0)
    rows = []
    for line in lines:
        figure = f"{line.figure:.3g}" if line.figure < 1000 else f"{line.figure:.0f}"
        verdict = "holds" if line.holds else "FAILS"
        rows.append(
            f"{line.what:<{widest}}  {figure:>6} {line.unit:<6} {line.sense} {line.bar:<5g} {verdict}  {line.detail}"
        )
    return "\n".join(row.rstrip() for row in rows)


def report(lines: Sequence[Line]) -> int:
    """Print the lines and how many are within their limits. Return the exit code."""
    print(f"\n{show(lines)}")
    held = sum(line.holds for line in lines)
    print(f"\n{held} of {len(lines)} lines hold")
    return 0 if held == len(lines) else 1
