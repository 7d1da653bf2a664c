"""Plots delay against requests as a PNG: one point per policy, and a line for adaptive at other prices.

matplotlib is imported only here, when a plot is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bide.core.errors import SetupError
from bide.lab.scenario import Scenario
from bide.lab.simulation import simulate
from bide.lab.summary import Summary

PRICES = tuple(4.0**i for i in range(-3, 5))


def require() -> Any:
    """Return matplotlib's figure module. SetupError says what to install."""
    try:
        return import_module("matplotlib.figure")  # needs no display, unlike pyplot
    except ModuleNotFoundError:
        raise SetupError.not_installed("A plot needs matplotlib", "plot") from None


def curve(scenario: Scenario, seeds: int) -> list[Summary]:
    """Return adaptive at several prices."""
    return [
        Summary.of([simulate(scenario, "adaptive", seed, price) for seed in range(seeds)])
        for price in PRICES
    ]


def draw(path: Path, scenario: Scenario, found: Sequence[Summary], line: Sequence[Summary]) -> None:
    figure = require().Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes = figure.subplots()
    if line:
        axes.plot(
            [point.per_job.value for point in line],
            [max(point.mean.value, 1e-3) for point in line],
            color="tab:green",
            linewidth=1,
            label="adaptive, other prices",
        )
    for summary in found:
        ours = summary.policy in ("adaptive", "oracle")
        x, y = summary.per_job.value, max(summary.mean.value, 1e-3)
        axes.errorbar(
            x,
            y,
            xerr=summary.per_job.half,
            yerr=min(summary.mean.half, y * 0.99),
            marker="o" if ours else "s",
            color="tab:green" if summary.policy == "adaptive" else "black" if ours else "tab:gray",
        )
        axes.annotate(summary.policy, (x, y), textcoords="offset points", xytext=(5, 4), fontsize=8)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="requests per job",
        ylabel="mean delay, s",
        title=scenario.name,
    )
    axes.grid(visible=True, which="both", alpha=0.2)
    if line:
        axes.legend()
    figure.savefig(path, format="png")
