"""What a pipeline's run looks like: a row an export in a terminal, lines elsewhere, or one JSON object a change.

Stdout has what is published and what failed, or with --json every change of a phase; the way there is on stderr.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bide.cli.output import print_json
from bide.client.progress import SHOWN
from bide.pipeline.run.context import ExportUpdate
from bide.pipeline.run.phase import Export, Phase
from bide.pipeline.run.pipeline_run import RunOutcome
from bide.pipeline.run.publication import OutputUpdate

PHASES = {
    Phase.NEW: 0,
    Phase.INITIATING: 0,
    Phase.INITIATED: 5,
    Phase.READY: 80,
    Phase.RESOLVED: 95,
    Phase.PUBLISHED: 100,
}
MONITORED = PHASES[Phase.READY] - PHASES[Phase.INITIATED]


def view_for(as_json: bool) -> SyncView:
    if as_json:
        return JsonSyncView()
    return LiveSyncView() if Console(stderr=True).is_terminal else SyncView()


class SyncView:
    """Lines: a change of a phase on stderr, an output on stdout."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def told(self, news: ExportUpdate) -> None:
        if news.moved and news.export.phase not in (Phase.NEW, Phase.INITIATING):
            click.echo(_line(news.export), err=True)

    def published(self, news: OutputUpdate) -> None:
        if news.stage != "normalizing":
            click.echo(_output(news))

    def summary(self, outcome: RunOutcome) -> None:
        for export in outcome.failed:
            click.echo(_line(export))
        counts = Counter("failed" if e.error else e.phase.lower() for e in outcome.exports)
        what = ", ".join(f"{count} {word}" for word, count in sorted(counts.items(), reverse=True))
        click.echo(f"{len(outcome.exports)} exports: {what}; {outcome.requests} requests", err=True)


class JsonSyncView(SyncView):
    def told(self, news: ExportUpdate) -> None:
        if news.moved:
            print_json(_export(news.export))

    def published(self, news: OutputUpdate) -> None:
        print_json(
            {
                "output": shown(news.path),
                "dataset": news.dataset,
                "phase": news.stage.upper(),
                "report": news.report,
                "missing": news.missing,
                "error": news.error,
            }
        )

    def summary(self, outcome: RunOutcome) -> None:
        print_json(
            {
                "period": outcome.run.period,
                "phase": "ENDED",
                "good": outcome.good,
                "exports": len(outcome.exports),
                "failed": len(outcome.failed),
                "requests": outcome.requests,
            }
        )


class LiveSyncView(SyncView):
    """A row an export, as many as fit; one that counts all of them."""

    def __init__(self) -> None:
        columns = (
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24, finished_style="green"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._rows: dict[str, TaskID] = {}
        self._phases: dict[str, Phase] = {}
        self._all: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        self._all = self._progress.add_task("all exports", total=None, note="")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def told(self, news: ExportUpdate) -> None:
        export = news.export
        self._phases[export.key] = export.phase
        settled = sum(phase.settled for phase in self._phases.values())
        if self._all is not None:
            count = f"{settled} of {len(self._phases)} are here"
            self._progress.update(self._all, total=len(self._phases), completed=settled, note=count)
        row = self._rows.get(export.key)
        if row is None and len(self._rows) < SHOWN and not export.phase.settled:
            row = self._rows[export.key] = self._progress.add_task(export.name, total=100, note="")
        if row is None:
            return
        if export.phase.settled or (export.error is not None and news.moved):
            self._progress.remove_task(row)
            del self._rows[export.key]
            return
        share = MONITORED * (news.percent or 0.0) / 100.0 if export.phase is Phase.INITIATED else 0.0
        note = news.message or export.phase.lower()
        done = PHASES.get(export.phase, 0) + share
        self._progress.update(row, completed=done, note=note.replace("[", r"\["))

    def published(self, news: OutputUpdate) -> None:
        if news.stage != "normalizing":
            self._progress.console.print(_output(news), markup=False, highlight=False)


def _line(export: Export) -> str:
    if export.error is None:
        return f"{export.name}: {export.phase.lower()}"
    return f"{export.name}: {export.phase.lower()}: {export.error.code}: {export.error.message}"


def _export(export: Export) -> dict[str, Any]:
    return {
        "export": export.name,
        "dataset": export.dataset,
        "phase": export.phase,
        "attempt": export.attempt,
        "jobId": export.ref.id if export.ref is not None else None,
        "files": len(export.files),
        "bytes": sum(file.size for file in export.files),
        "error": export.error,
    }


def _output(news: OutputUpdate) -> str:
    where = shown(news.path)
    if news.stage in ("refused", "failed"):
        return f"{where}: not published: {news.error}"
    report = news.report or {}
    said = [f"{report.get('rows', 0)} rows"]
    if report.get("duplicates"):
        said.append(f"{report['duplicates']} duplicates left out")
    if report.get("bad"):
        where_to = f", in {shown(Path(report['badFile']))}" if report.get("badFile") else ""
        said.append(f"{report['bad']} bad rows{where_to}")
    if report.get("columnsNew"):
        said.append(f"new columns: {', '.join(report['columnsNew'])}")
    if report.get("columnsMissing"):
        said.append(f"missing columns: {', '.join(report['columnsMissing'])}")
    if news.missing:
        said.append(f"without {', '.join(news.missing)}")
    return f"{where}: {news.stage}: {', '.join(said)}"


def shown(path: Path) -> str:
    """As short as it can be written from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
