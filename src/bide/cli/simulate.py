"""`bide simulate`: compares polling policies in virtual time."""

from __future__ import annotations

from pathlib import Path

import click

from bide.cli.output import json_option, print_json, print_table


@click.command()
@click.argument("scenario", metavar="SCENARIO.toml")
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="Run only this policy. May be repeated."
)
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1), help="How many runs per policy."
)
@click.option(
    "--price",
    type=click.FloatRange(0, min_open=True),
    help="Seconds of delay that one request is worth.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE.png",
    help="Plot delay against requests.",
)
@json_option
def simulate(
    scenario: str,
    policies: tuple[str, ...],
    seeds: int,
    price: float | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare polling policies: how many requests, how much delay.

    SCENARIO.toml describes the limit of an API and the jobs; the name of a shipped scenario works too, and an unknown
    name lists them.

    \b
    Policies:
      adaptive                    what the client does
      oracle                      adaptive, if it knew how long such jobs take
      azure, boto, google         the defaults of these SDKs
      grow-2-to-10                at once, then after 2 s, 3 s, 4.5 s … up to 10 s
      double-on-429               every second; each 429 doubles the interval
      random-5-to-10              every 5 to 10 s; a 429 doubles the interval until the next success
      steps-2-10-30               every 2 s, after 30 s every 10 s, after 2 minutes every 30 s
      fixed:SECONDS               at a fixed interval
      backoff:FIRST,FACTOR,CAP    up to FIRST seconds at random, then FACTOR times as many, up to CAP

    \b
    Examples:
      bide simulate lipsync-burst
      bide simulate night.toml --policy adaptive --policy fixed:30 --seeds 20
      bide simulate night.toml --plot night.png
    """
    from bide.core.pacing.intervals import PRICE
    from bide.lab import plot as plotting
    from bide.lab.advice import outlook
    from bide.lab.policies import DEFAULTS, OURS, peer
    from bide.lab.scenario import read_scenario
    from bide.lab.simulation import simulate as run
    from bide.lab.summary import COLUMNS, Summary, row

    read = read_scenario(scenario)
    names = policies or DEFAULTS
    for name in names:
        if name not in OURS:
            peer(name)  # fail before the first run if there is no such policy
    if plot is not None:
        plotting.require()
    found = []
    for name in names:
        summary = Summary.of([run(read, name, seed, price or PRICE) for seed in range(seeds)])
        found.append(summary)
        if as_json:
            print_json(summary.to_wire())
    if not as_json:
        print_table(COLUMNS, [row(summary) for summary in found], empty="no policies")
        click.echo(str(outlook(read, price or PRICE)), err=True)
    if plot is not None:
        line = plotting.curve(read, min(seeds, 5)) if "adaptive" in names else []
        plotting.draw(plot, read, found, line)
