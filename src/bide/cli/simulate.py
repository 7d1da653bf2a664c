"""`bide simulate`: policies side by side, in virtual time."""

from __future__ import annotations

from pathlib import Path

import click

from bide.cli.output import json_option, print_json, print_table


@click.command()
@click.argument("scenario", metavar="SCENARIO.toml")
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1), help="How many runs.")
@click.option(
    "--price",
    type=click.FloatRange(0, min_open=True),
    help="Seconds of waiting that a request is worth.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE.png",
    help="Draw delay against requests.",
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
    """Compare ways of waiting: how many requests, how much delay.

    SCENARIO.toml says what an API allows and which jobs there are; the name of a scenario that comes with bide does as
    well, and a wrong one lists them. Policies: adaptive (what the client does), oracle (the same, told the
    true distribution), azure, boto, google, seed-docs, seed-lipsync, seed-lipsync-advice, seed-video, fixed:SECONDS
    and backoff:FIRST,FACTOR,CAP.

    \b
    Examples:
      bide simulate lipsync-burst
      bide simulate night.toml --policy adaptive --policy fixed:30 --seeds 20
      bide simulate night.toml --plot night.png
    """
    from bide.core.pacing import PRICE
    from bide.lab import plot as plotting
    from bide.lab.advice import outlook
    from bide.lab.policies import DEFAULTS, OURS, peer
    from bide.lab.run import simulate as run
    from bide.lab.scenario import read_scenario
    from bide.lab.summary import COLUMNS, Summary, row

    read = read_scenario(scenario)
    names = policies or DEFAULTS
    for name in names:
        if name not in OURS:
            peer(name)  # says so now when there is none such
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
