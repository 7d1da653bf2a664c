"""Output of commands: tables and lines on stdout, or one JSON object per line with --json; notes and bars on stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec

from bide.cli.logs import LogFormat
from bide.client.terminal_text import harmless, harmless_json
from bide.core.clock import read_instant
from bide.core.jobs.record import SUCCESSFUL
from bide.core.json_log import JsonFormatter
from bide.core.wire.http import JobStatus, WireStep

T = TypeVar("T")
COLOURS = {
    "DONE": "green",
    "PARTIAL_SUCCESS": "yellow",
    "ERROR": "red",
    "CANCELLED": "red",
    "PROCESSING": "cyan",
    "RETRYING": "yellow",
}
AGAIN = 30.0  # seconds after which an equal message of the log is printed again; trouble is reported every 60
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Also print each change of a job's status, on stderr."
)


def ignore_change(job: JobStatus) -> None:
    """For a wait whose changes only the log reports: without a listener a bide service reports only the end."""


class Terminal:
    """Prints the lines of a command that may show bars.

    `console` shows the bars. Lines in the same terminal go through it, too, so that neither overwrites the other.
    """

    def __init__(self, log_format: LogFormat = "text") -> None:
        from rich.console import Console

        self._formatter = JsonFormatter() if log_format == "json" else None

        self.console = Console(stderr=True)
        if self.console.is_terminal:
            from bide.client.progress import BarConsole

            self.console = BarConsole()
        self.shows_bars = self.console.is_terminal
        self._shows_results = self.shows_bars and _same_terminal()

    def result(self, text: str) -> None:
        """Print a line on stdout."""
        if self._shows_results:
            self._print(text)
        else:
            print_line(text)

    def json(self, record: Any) -> None:
        text = msgspec.json.encode(record).decode()
        self.result(harmless_json(text) if sys.stdout.isatty() else text)

    def note(self, text: str, prefix: str = "bide: ") -> None:
        """Print a message on stderr."""
        if self._formatter is not None:
            self.record(logging.LogRecord("bide", logging.INFO, "", 0, "%s", (text,), None))
        elif self.shows_bars:
            self._print(prefix + text)
        else:
            click.echo(prefix + text, err=True)

    def record(self, record: logging.LogRecord) -> None:
        """Print a log record on stderr."""
        if self._formatter is None:
            self.note(record.getMessage())
        elif self.shows_bars:
            self._print(self._formatter.format(record))
        else:
            click.echo(self._formatter.format(record), err=True)

    def _print(self, text: str) -> None:
        self.console.out(harmless(text), highlight=False)


class LogPrinter(logging.Handler):
    """Prints the warnings of bide's log on stderr, with `verbose` also its information. Use it as a context manager. A
    message that several jobs or processes log at the same time is printed once.
    """

    def __init__(self, terminal: Terminal, *, verbose: bool = False) -> None:
        super().__init__(logging.INFO if verbose else logging.WARNING)
        self._terminal = terminal
        self._last = ""
        self._printed = 0.0
        self._log = logging.getLogger("bide")
        self._level_before = self._log.level

    def __enter__(self) -> None:
        self._log.addHandler(self)
        if self.level < logging.WARNING:
            self._log.setLevel(self.level)

    def __exit__(self, *error: object) -> None:
        self._log.removeHandler(self)
        self._log.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text != self._last or record.created - self._printed >= AGAIN:
            self._terminal.record(record)
            self._last, self._printed = text, record.created


def _same_terminal() -> bool:
    """Whether stdout and stderr are the same terminal."""
    try:
        out, error = sys.stdout.fileno(), sys.stderr.fileno()
        return os.isatty(out) and os.fstat(out).st_rdev == os.fstat(error).st_rdev
    except (OSError, ValueError):  # not a file, e.g. in a test
        return False


def print_line(text: str, err: bool = False) -> None:
    """Print text that may come from an API or a handler."""
    stream = sys.stderr if err else sys.stdout
    click.echo(harmless(text) if stream.isatty() else text, err=err)


def print_json(record: Any, indent: int = 0) -> None:
    encoded = msgspec.json.encode(record)
    if indent:
        encoded = msgspec.json.format(encoded, indent=indent)
    click.echo(harmless_json(encoded.decode()) if sys.stdout.isatty() else encoded)


def print_records(
    records: Iterable[T],
    as_json: bool,
    columns: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    empty: str,
) -> None:
    """One JSON object per line, or a table with a row for each record."""
    if as_json:
        for record in records:
            print_json(record)
    else:
        print_table(columns, [row(record) for record in records], empty=empty)


def print_jobs(jobs: Iterable[JobStatus], as_json: bool) -> None:
    columns = ("job", "kind", "status", "progress", "queue", "attempt", "created", "note")
    print_records(jobs, as_json, columns, _row, empty="no jobs")


def _row(job: JobStatus) -> list[str]:
    return [
        job.job_id,
        job.kind,
        str(job.status),
        percent(job),
        job.queue,
        f"{job.attempt}/{job.max_attempts}",
        age(job.created_at),
        "cancel requested" if _is_stopping(job) else note(job),
    ]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """In a terminal a table that fits; in a pipe the whole values, for `grep` and `awk`."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        click.echo(empty, err=True)
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="dim")
    table.columns[0].no_wrap = True
    shown = sys.stdout.isatty()
    for row in rows:
        cells = map(harmless, row) if shown else row
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in cells))
    if shown:
        Console().print(table)
    else:
        for column in table.columns:
            column.no_wrap = True
        Console(width=10_000).print(table)


def print_details(job: JobStatus) -> None:
    """One job, one line per field."""
    for name, value in job_facts(job).items():
        print_line(f"{name:>9}  {value}")


def job_facts(job: JobStatus) -> dict[str, str]:
    """What is known about a job, by the name of the field; unknown fields are left out."""
    facts: dict[str, str | None] = {
        "job": job.job_id,
        "kind": job.kind,
        "status": " ".join([str(job.status), *(f"({mark})" for mark in _marks(job))]),
        "error": _error(job),
        "failed in": _failed_step(job),
        "progress": " ".join(filter(None, (percent(job), _activity(job)))),
        "finish": job.eta.finish_at if job.eta is not None else "",
        "queue": job.queue,
        "attempt": f"{job.attempt} of {job.max_attempts}",
        "labels": " ".join(f"{name}={value}" for name, value in job.labels.items()),
        "created": job.created_at,
        "run at": job.run_at,
        "started": job.started_at,
        "next try": job.next_attempt_at,
        "finished": job.finished_at,
        "deadline": job.deadline,
        "trace": job.trace_id,
        "steps": ", ".join(map(_step, job.steps)),
        "children": ", ".join(f"{child.job_id} {child.status or 'running'}" for child in job.children),
        "files": ", ".join(f"{file.name} ({file.size} bytes)" for file in job.files),
        "result": "" if job.result is None else compact(job.result),
    }
    return {name: value for name, value in facts.items() if value}


def percent(job: JobStatus) -> str:
    """The progress of a live job, or of a failed one when it stopped."""
    if job.progress is None or job.progress.percent is None or job.status in SUCCESSFUL:
        return ""
    return f"{job.progress.percent:.0f}%"


def _marks(job: JobStatus) -> list[str]:
    marks = {"cancel requested": _is_stopping(job), "overdue": job.overdue}
    return [mark for mark, is_set in marks.items() if is_set]


def note(job: JobStatus) -> str:
    return " ".join(filter(None, ("overdue" if job.overdue else "", _error(job) or _activity(job))))


def _error(job: JobStatus) -> str:
    return "" if job.error is None else f"{job.error.code}: {job.error.message}"


def _failed_step(job: JobStatus) -> str:
    if job.error is None or job.error.failed_step is None:
        return ""
    attempt = "" if job.error.attempt is None else f", attempt {job.error.attempt}"
    return f"step {job.error.failed_step}{attempt}"


def _step(step: WireStep) -> str:
    if step.started_at is None or step.finished_at is None:
        return f"{step.name} {step.status}"
    seconds = read_instant(step.finished_at) - read_instant(step.started_at)
    return f"{step.name} {step.status} in {seconds:.3g} s"


def _activity(job: JobStatus) -> str:
    """What a live job does."""
    if job.progress is None or job.status.terminal:
        return ""
    return job.progress.message or job.progress.step or ""


def log_line(line: dict[str, Any]) -> str:
    """A line of a job's log: time, attempt, level, logger, message, and the fields of `ctx.log`."""
    known = {"at", "attempt", "level", "logger", "message"}
    source = f"{line['logger']}: " if line.get("logger") else ""
    fields = "".join(f"  {name}={_value(value)}" for name, value in line.items() if name not in known)
    level = str(line["level"]).upper()
    return f"{line['at']}  {line['attempt']}  {level:<8}  {source}{line.get('message', '')}{fields}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


def print_log_line(line: dict[str, Any]) -> None:
    print_line(log_line(line))


def _is_stopping(job: JobStatus) -> bool:
    """Whether the service has accepted a cancel of a job that still runs."""
    return job.cancel_requested and not job.status.terminal


def compact(value: Any, most: int = 200) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def age(instant: str) -> str:
    """How long ago, in one unit."""
    try:
        seconds = datetime.now(UTC).timestamp() - read_instant(instant)
    except ValueError:
        return instant
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
