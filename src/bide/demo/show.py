"""Shows the jobs of the demo while they run: progress bars in a terminal, otherwise one line per change, on stderr.

One request polls all running jobs and their children.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Column

from bide.client.blocking import Client
from bide.core.jobs.record import SUCCESSFUL, Status
from bide.core.wire.http import JobStatus

EVERY = 0.4  # seconds between two polls
CHILD = "└ thumbnail"

Show = Callable[[str, JobStatus], None]  # the name of a job in the demo, and its status


def watch(client: Client, names: dict[str, str], show: Show) -> dict[str, JobStatus]:
    """Show the jobs (id: name) until they have ended. Return the last status of them and of their children."""
    known: dict[str, JobStatus] = {}
    open_names = dict(names)
    while True:
        for job_id, job in client.statuses(list(open_names)).items():
            known[job_id] = job
            show(open_names[job_id], job)
            if job.status.terminal:
                open_names.pop(job_id)
            for child in job.children:
                if child.job_id not in known:
                    open_names.setdefault(child.job_id, f"{names[job_id]}/{child.kind}")
        if not open_names:
            return known
        time.sleep(EVERY)


@contextmanager
def display(names: Sequence[str]) -> Iterator[Show]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield StatusLines().show
        return
    columns = (
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[percent]:>4}"),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=console) as progress:
        yield Bars(progress, names).show


class Bars:
    """One row per video, and below it one for its thumbnail once that exists."""

    def __init__(self, progress: Progress, names: Sequence[str]) -> None:
        self._progress = progress
        self._rows: dict[str, TaskID] = {}
        for name in names:
            self._rows[name] = progress.add_task(name, total=100.0, percent="", note="")
            self._rows[f"{name}/thumbnail"] = progress.add_task(
                CHILD, total=None, percent="", note="", visible=False
            )

    def show(self, name: str, job: JobStatus) -> None:
        percent = job.progress.percent if job.progress is not None else None
        if job.status in SUCCESSFUL:
            percent = 100.0
        unknown = percent is None and job.status is Status.PROCESSING
        self._progress.update(
            self._rows[name],
            visible=True,
            total=None if unknown else 100.0,
            completed=percent or 0.0,
            percent="" if percent is None else f"{percent:.0f}%",
            note=_coloured(job),
        )


def _coloured(job: JobStatus) -> str:
    colour = "green" if job.status in SUCCESSFUL else "red" if job.error is not None else ""
    text = escape(note(job))
    return f"[{colour}]{text}[/]" if colour else text


class StatusLines:
    """Prints a line when the status or the step of a job changes."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last: dict[str, str] = {}

    def show(self, name: str, job: JobStatus) -> None:
        busy = job.status is Status.PROCESSING and not job.children
        text = _step(job) if busy else note(job)
        line = f"{name:<24} {text}"
        if text and self._last.get(name) != line:
            self._last[name] = line
            click.echo(f"{time.monotonic() - self._began:6.1f} s  {line}", err=True)


def _waits(job: JobStatus) -> bool:
    return any(child.status is None for child in job.children)


def _step(job: JobStatus) -> str:
    running = [step.name for step in job.steps if step.status is Status.PROCESSING]
    return running[-1] if running else ""


def note(job: JobStatus) -> str:
    """Describe the current activity of a job in a few words."""
    if job.error is not None:
        return f"{job.status} {job.error.code}: {job.error.message}"
    if job.status is Status.PENDING:
        return f"waiting in queue {job.queue}"
    if job.status.terminal:
        return str(job.status)
    if _waits(job):
        return "parked until its thumbnail is ready"
    if job.children and not _step(job):
        return "waiting for a worker"
    progress = job.progress
    if progress is None:
        return ""
    if progress.done is None or progress.total is None:
        return progress.message or _step(job)
    count = f"{progress.done:.0f}/{progress.total:.0f} {progress.unit or ''}"
    return f"{progress.message or progress.step}, {count}".rstrip()
