"""Progress bars for one or many jobs, on stderr and only in a terminal.

A job without a known percentage has a bar that only moves: no progress is better than a false one. Many jobs share one
bar that counts them; of the single bars only those of running jobs are shown, and no more than fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from bide.client.terminal_text import harmless
from bide.core.jobs.record import SUCCESSFUL, Status
from bide.core.wire.http import JobStatus

SHOWN = 12
COLOURS = {
    Status.DONE: "green",
    Status.PARTIAL_SUCCESS: "yellow",
    Status.ERROR: "red",
    Status.CANCELLED: "red",
}


class BarConsole(Console):
    """A console, by default on stderr, that prints one thing at a time: a line, or the bars.

    Before Rich prints a line, it computes how far up the bars begin. If its thread redraws fewer bars before the line is
    printed, the line replaces the one above the bars.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(stderr=True, **options)
        self._printing: AbstractContextManager[object] = nullcontext()

    def share(self, progress: Progress) -> None:
        """Print under the lock that the thread of these bars holds while it draws them."""
        self._printing = progress.live._lock

    def out(self, *objects: Any, **options: Any) -> None:
        with self._printing:
            super().out(*objects, **options)


class Show(Protocol):
    def __call__(self, job: JobStatus, key: Hashable = None) -> object:
        """`key` identifies the job; by default its id does."""
        ...


@contextmanager
def bars(job_ids: Sequence[Hashable], wanted: object = True) -> Iterator[Show | None]:
    """Yield a function to call at each change; None if stderr is not a terminal.

    `job_ids` are the keys that `Show` is called with: jobs of two services may have the same id. `wanted` may be the
    caller's console: its lines go above the bars, and the bars disappear at the end, because the lines have the results.
    """
    console = wanted if isinstance(wanted, Console) else Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24, finished_style="green"),
        TextColumn("{task.fields[percent]:>4}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    # If stdout is a terminal, its lines go above the bars.
    stdout = sys.stdout.isatty()
    gone = console is wanted
    with Progress(*columns, console=console, redirect_stdout=stdout, transient=gone) as progress:
        if isinstance(console, BarConsole):
            console.share(progress)
        yield ProgressBars(progress, job_ids).show


@contextmanager
def upload_bar(name: str, size: int, wanted: Any = True) -> Iterator[Callable[[int], object]]:
    """Yield a function that takes the number of sent bytes; `wanted` may be the caller's own bar, e.g. of tqdm, or its
    console."""
    if hasattr(wanted, "update"):
        wanted.total = size
        shown = 0

        def move(sent: int) -> None:
            nonlocal shown
            wanted.update(sent - shown)
            shown = sent

        yield move
        return
    console = wanted if isinstance(wanted, Console) else Console(stderr=True)
    if not console.is_terminal:
        yield lambda sent: None
        return
    columns = (
        *(TextColumn("{task.description}"), BarColumn(bar_width=24, finished_style="green")),
        *(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()),
    )
    stdout = sys.stdout.isatty()
    gone = console is wanted
    with Progress(*columns, console=console, redirect_stdout=stdout, transient=gone) as progress:
        row = progress.add_task(cell(name), total=size)
        yield lambda sent: progress.update(row, completed=sent)


class ProgressBars:
    """The rows: one for all jobs if there are several, and one for each job that is shown."""

    def __init__(self, progress: Progress, job_ids: Sequence[Hashable]) -> None:
        self._progress = progress
        self._rows: dict[Hashable, TaskID] = {}
        self._ended: set[Hashable] = set()
        self._jobs = len(set(job_ids))
        self._all: TaskID | None = None
        if self._jobs > 1:
            self._all = progress.add_task("all jobs", total=self._jobs, percent="", note=self._count())

    def show(self, job: JobStatus, key: Hashable = None) -> None:
        key = job.job_id if key is None else key
        if job.status.terminal:
            self._ended.add(key)
        if self._all is not None:
            self._progress.update(self._all, completed=len(self._ended), note=self._count())
        row = self._row(job, key)
        if row is None:
            return
        if job.status.terminal and self._jobs > SHOWN:
            self._progress.remove_task(row)
            del self._rows[key]
        else:
            self._update(row, job)

    def _row(self, job: JobStatus, key: Hashable) -> TaskID | None:
        row = self._rows.get(key)
        if (
            row is None
            and len(self._rows) < SHOWN
            and (self._jobs <= SHOWN or job.status is Status.PROCESSING)
        ):
            name = f"{job.kind} {job.job_id[-6:]}".strip()  # not every API has kinds
            row = self._rows[key] = self._progress.add_task(cell(name), total=None, percent="", note="")
        return row

    def _update(self, row: TaskID, job: JobStatus) -> None:
        percent = job.progress.percent if job.progress is not None else None
        if job.status in SUCCESSFUL:
            percent = 100.0
        stopped = job.status.terminal and percent is None
        self._progress.update(
            row,
            total=100.0 if percent is not None or stopped else None,
            completed=percent or 0.0,
            percent="" if percent is None else f"{percent:.0f}%",
            note=_note(job),
        )
        if job.status.terminal:
            self._progress.stop_task(row)

    def _count(self) -> str:
        return f"{len(self._ended)} of {self._jobs} ended"


def _note(job: JobStatus) -> str:
    if job.error is not None and job.status is not Status.PROCESSING:
        text = f"{job.status} {job.error.code}: {job.error.message}"
    elif job.status is Status.PROCESSING and job.progress is not None:
        text = job.progress.message or job.progress.step or str(job.status)
    else:
        text = str(job.status)
    colour = COLOURS.get(job.status)
    line = cell(text)
    return f"[{colour}]{line}[/]" if colour else line


def cell(text: str) -> str:
    """The first line of a text that may come from an API or a handler, for a column of the bars."""
    return escape(harmless(text.splitlines()[0])) if text else ""


class CallersBar:
    """The caller's own bar, e.g. of tqdm: it counts jobs, or follows the percentage of a single one."""

    def __init__(self, bar: Any, jobs: int) -> None:
        self._bar = bar
        self._single = jobs == 1
        self._ended: set[Hashable] = set()
        self._shown = 0.0
        bar.total = 100 if self._single else jobs
        if hasattr(bar, "refresh"):
            bar.refresh()

    def show(self, job: JobStatus, key: Hashable = None) -> None:
        if job.status.terminal:
            self._ended.add(job.job_id if key is None else key)
        target = float(len(self._ended))
        if self._single:
            percent = job.progress.percent if job.progress is not None else None
            target = 100.0 if job.status in SUCCESSFUL else percent or self._shown
        if target > self._shown:
            self._bar.update(target - self._shown)
            self._shown = target
