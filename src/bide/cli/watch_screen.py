"""What `bide watch` shows, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from bide.cli.output import COLOURS, age, job_facts, log_line, note, percent
from bide.client.terminal_text import harmless
from bide.core.jobs.record import SUCCESSFUL, Progress, Status
from bide.core.wire.http import JobStatus

BAR = 20  # columns
QUEUES = 6  # that are shown; a third of a small screen
HELP = "j/k select  Enter open  c cancel  r retry  / filter  f failed  q quit"
HELP_OPEN = "Esc back  c cancel  r retry  q quit"


@dataclass
class WatchState:
    """The lists as they were read last, and what the user has chosen."""

    url: str
    selection: dict[str, Any]  # by the options of the command
    q: str = ""
    only_failed: bool = False
    queues: list[dict[str, Any]] = field(default_factory=list)
    running: list[JobStatus] = field(default_factory=list)
    failed: list[JobStatus] = field(default_factory=list)
    newest: list[JobStatus] = field(default_factory=list)
    chosen: str | None = None  # the id of a job
    open: str | None = None  # the id of the job whose details are shown
    details: JobStatus | None = None
    log: list[dict[str, Any]] = field(default_factory=list)
    typing: str | None = None  # a filter
    message: str = ""

    @property
    def filter(self) -> dict[str, Any]:
        return {**self.selection, "q": self.q or None}

    @property
    def rows(self) -> list[JobStatus]:
        """The jobs of the list: running ones first, so that their bars do not move when a job is submitted."""
        if self.only_failed:
            return self.failed
        found = {job.job_id: job for job in self.running}
        for job in self.newest:
            found.setdefault(job.job_id, job)
        return list(found.values())

    @property
    def chosen_job(self) -> JobStatus | None:
        known = [self.details] if self.open is not None else self.rows
        return next((job for job in known if job is not None and job.job_id == self.chosen), None)

    def move_cursor(self, by: int) -> None:
        ids = [job.job_id for job in self.rows]
        if self.open is not None or not ids:
            return
        place = ids.index(self.chosen) + by if self.chosen in ids else 0
        self.chosen = ids[max(0, min(place, len(ids) - 1))]

    def move(self, job_id: str, progress: Progress) -> None:
        """Show the new progress of a job."""
        self.running = [
            replace(job, progress=progress) if job.job_id == job_id else job for job in self.running
        ]
        if self.details is not None and self.details.job_id == job_id:
            self.details = replace(self.details, progress=progress)


def render(state: WatchState, height: int) -> RenderableType:
    """The whole screen. No part of it is higher than its share, because Rich cuts what does not fit."""
    rest = height - 3  # the head, and the two lines at the end
    parts: list[RenderableType] = [_head(state)]
    if state.open is not None:
        parts.append(_details(state, rest - 1))
    else:
        queues = min(len(state.queues), QUEUES, max(1, rest // 3))
        failed = 0 if state.only_failed else min(len(state.failed), max(1, rest // 4))
        if state.queues:
            parts += [_title("queues"), _queues(state, queues)]
            rest -= queues + 2
        if failed:
            rest -= failed + 1
        parts += [_title("failed jobs" if state.only_failed else "jobs"), _jobs(state, max(1, rest - 2))]
        if failed:
            parts += [_title("failures"), _failures(state.failed[:failed])]
    parts += [Text(harmless(_last_line(state)), style="yellow", no_wrap=True, overflow="ellipsis")]
    parts += [Text(HELP_OPEN if state.open else HELP, style="dim", no_wrap=True, overflow="ellipsis")]
    return Group(*parts)


def _head(state: WatchState) -> Text:
    names = (
        f"{name} {':'.join(v) if isinstance(v, tuple) else v}" for name, v in state.selection.items()
    )
    shown = [state.url, *names, *([state.q] if state.q else [])]
    text = harmless("  ".join(shown))
    counts = f"  {len(state.running)} running, {len(state.failed)} failed"
    return Text.assemble(
        ("bide watch  ", "bold"), text, (counts, "dim"), no_wrap=True, overflow="ellipsis"
    )


def _last_line(state: WatchState) -> str:
    return (
        state.message
        if state.typing is None
        else f"filter: {state.typing}▏ Enter applies it, Esc discards it"
    )


def _title(text: str) -> Rule:
    return Rule(text, align="left", style="dim")


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None, pad_edge=False, header_style="dim", expand=True)
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    return table


def _queues(state: WatchState, most: int) -> Table:
    table = _table("queue", "waiting", "running", "oldest", "predicted wait", "")
    for one in state.queues[:most]:
        marks = ("paused" if one.get("paused") else "", "" if one.get("served", True) else "no worker")
        table.add_row(
            harmless(str(one["name"])),
            str(one.get("backlog", "")),
            str(one.get("running", "")),
            _seconds(one.get("oldestAge")),
            _seconds(one.get("predictedWait")),
            Text(" ".join(filter(None, marks)), style="yellow"),
        )
    return table


def _jobs(state: WatchState, most: int) -> RenderableType:
    rows = state.rows
    if not rows:
        return Text("No jobs match. Submit one: bide submit KIND --input '{…}'", style="dim")
    ids = [job.job_id for job in rows]
    place = ids.index(state.chosen) if state.chosen in ids else 0
    first = max(0, min(place - most // 2, len(rows) - most))
    table = _table("job", "kind", "status", "progress", "", "created", "note")
    table.columns[0].min_width, table.columns[6].ratio = 26, 1
    for job in rows[first : first + most]:
        table.add_row(
            job.job_id,
            harmless(job.kind),
            Text(str(job.status), style=COLOURS.get(str(job.status), "")),
            _bar(job),
            percent(job),
            age(job.created_at),
            _one_line(note(job)),
            style="reverse" if job.job_id == state.chosen else "",
        )
    return table


def _bar(job: JobStatus) -> RenderableType:
    if job.status is not Status.PROCESSING and job.status not in SUCCESSFUL:
        return ""
    known = job.progress.percent if job.progress is not None else None
    done = 100.0 if job.status in SUCCESSFUL else known
    return ProgressBar(100.0, done or 0.0, width=BAR, pulse=done is None)


def _failures(failed: list[JobStatus]) -> Table:
    table = _table("", "", "", "")
    table.show_header, table.columns[3].ratio = False, 1
    table.columns[0].min_width = 26
    for job in failed:
        when = age(job.finished_at or job.updated_at)
        table.add_row(job.job_id, harmless(job.kind), when, Text(_one_line(note(job)), style="red"))
    return table


def _details(state: WatchState, most: int) -> RenderableType:
    job = state.details
    if job is None:
        return Text(f"Reading {state.open} …", style="dim")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(justify="right", style="dim", no_wrap=True)
    facts.add_column(no_wrap=True, overflow="ellipsis")
    known = list(job_facts(job).items())[: max(1, most - 4)]
    for name, value in known:
        facts.add_row(name, Text(_one_line(value), style=COLOURS.get(value, "")))
    parts: list[RenderableType] = [_title(f"{harmless(job.kind)} {job.job_id}"), _bar(job), facts]
    lines = max(0, most - len(known) - 3)
    if lines and state.log:
        parts.append(_title("log"))
        for line in state.log[-lines:]:
            parts.append(Text(_one_line(log_line(line)), no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _one_line(text: str) -> str:
    return harmless(text).replace("\n", " ")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} s"
