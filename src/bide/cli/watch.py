"""`bide watch`: running jobs with bars, queues and failures in a terminal; without a terminal one line per change.

Data flows in one direction: from the service's lists and events into `WatchState`, and from there to the screen. A key
changes the state, or sends a request to the service, whose effect the next lists show.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any

import click
import msgspec

from bide.cli.bulk import kind_option, label_option, queue_option
from bide.cli.jobs import POSSIBLE
from bide.cli.output import json_option, print_json, print_line
from bide.cli.settings import Connection, speaks_to_service
from bide.cli.watch_screen import WatchState, render
from bide.client.client import AsyncClient
from bide.client.events import JobEvent
from bide.core.errors import BideError, ServiceError
from bide.core.jobs.record import Progress, Status

EVERY = 5.0  # seconds after which the lists are read again without an event
SOONEST = 1.0  # seconds between two reads of the lists
LOG_LINES = 200  # of the open job
MOST = 50  # jobs of each list
KEYS = {
    "\x1b[A": "k",
    "\x1b[B": "j",
    "\x1bOA": "k",
    "\x1bOB": "j",
    "\n": "\r",
    "\x08": "\x7f",
}
# A sequence such as that of an arrow, or a character; Escape is one if no sequence follows.
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
ESCAPE, ENTER, BACKSPACE = "\x1b", "\r", "\x7f"


@click.command("watch")
@kind_option
@queue_option
@label_option
@json_option
@speaks_to_service
def watch(
    connection: Connection,
    kind: str | None,
    queue: str | None,
    label: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Watch running jobs, queues and failures.

    In a terminal, the command shows all three and keeps them up to date. Keys: j and k select a job, Enter opens it, c
    cancels it and r retries it, / enters a filter such as 'error:OCR_TIMEOUT', f shows only failed jobs, q quits.

    Without a terminal, or with --json, the command prints one line per change of a job's status, until Ctrl-C.

    \b
    Examples:
      bide watch
      bide watch --kind transcode --label team=ops
      bide watch | grep ERROR
      bide watch --json --queue video
    """
    selection = {"kind": kind, "queue": queue, "label": label}
    run = _show if not as_json and _is_interactive() else _print
    asyncio.run(run(connection, selection, as_json))


def _is_interactive() -> bool:
    try:
        import termios  # noqa: F401
    except ImportError:  # on Windows
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


# --- lines


async def _print(connection: Connection, selection: dict[str, Any], as_json: bool) -> None:
    async with connection.client() as client, _events(client, selection, "status") as events:
        async for event in events:
            if event.type != "status":
                continue
            if as_json:
                print_json(msgspec.to_builtins(event))
            else:
                print_line(_line(event))
            sys.stdout.flush()


def _line(event: JobEvent) -> str:
    facts = event.job
    error = facts.get("error") or {}
    attempt = f"attempt {facts['attempt']}" if facts.get("attempt", 0) > 1 else ""
    note = f"{error['code']}: {error['message']}" if error else ""
    parts = (event.at, event.job_id, facts.get("kind"), facts.get("status"), attempt, note)
    return "  ".join(str(part) for part in parts if part).replace("\n", " ")


@asynccontextmanager
async def _events(
    client: AsyncClient, selection: dict[str, Any], *types: str
) -> AsyncIterator[AsyncIterator[JobEvent]]:
    chosen = {name: value for name, value in selection.items() if value is not None}
    async with aclosing(client.events(type=types, **chosen)) as events:
        yield events


# --- the screen


async def _show(connection: Connection, selection: dict[str, Any], as_json: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    state = WatchState(connection.url, {k: v for k, v in selection.items() if v is not None})
    async with connection.client() as client:
        console = Console()
        live = Live(console=console, screen=True, auto_refresh=False)
        viewer = Viewer(client, state, lambda: live.update(render(state, console.height), refresh=True))
        await viewer.load()  # an error ends the command before there is a screen
        with _keys(viewer.press), live:
            await viewer.run()


@contextmanager
def _keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call `press` with each key, which the terminal does not print meanwhile. Ctrl-C stays an interruption."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()

    def read() -> None:
        text = os.read(terminal, 1024).decode(errors="replace")
        if not text:  # the terminal was closed
            loop.remove_reader(terminal)
            press("q")
        for key in _KEY.findall(text):
            press(KEYS.get(key, key))

    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


class Viewer:
    """Reads the lists and events of a service into a WatchState, and acts on keys."""

    def __init__(self, client: AsyncClient, state: WatchState, draw: Callable[[], None]) -> None:
        self._client = client
        self._state = state
        self._draw = draw
        self._changed = asyncio.Event()  # the lists have to be read again
        self._quit = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._action: str | None = None  # waits for `y`

    async def run(self) -> None:
        """Show the screen until the user quits."""
        self._start(self._follow())
        self._start(self._reload())
        self._draw()
        try:
            await self._quit.wait()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except BideError as error:
                self._state.message = str(error)
            self._draw()

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- from the service

    async def load(self) -> None:
        """Read the lists."""
        state, client = self._state, self._client
        try:
            state.queues = await client.queues()
        except ServiceError as error:
            if error.status != 403:
                raise
            state.queues = []  # the key may not see them
        filter = state.filter
        running: list[str] = [Status.PROCESSING, Status.RETRYING]
        found = (
            await client.list(**filter, status=running, order="oldest", limit=MOST),
            await client.list(**filter, status=[Status.ERROR], limit=MOST),
            await client.list(**filter, limit=MOST),
        )
        if filter != state.filter:  # the user has entered another one, which is being applied
            return
        state.running, state.failed, state.newest = found
        await self._load_open()
        state.message = ""

    async def _load_open(self) -> None:
        state = self._state
        if state.open is None:
            return
        found = await self._client.statuses([state.open])
        state.details = found.get(state.open)
        lines: list[dict[str, Any]] = []
        with suppress(ServiceError):
            async with aclosing(self._client.log(state.open)) as log:
                async for line in log:
                    lines.append(line)
        state.log = lines[-LOG_LINES:]

    async def _reload(self) -> None:
        """Read the lists after a change, at most every SOONEST seconds, and every EVERY seconds."""
        while True:
            await asyncio.sleep(SOONEST)
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.load()
            except BideError as error:
                self._state.message = f"{error}. Trying again"
            self._draw()

    async def _follow(self) -> None:
        """Move the bars, and notice changes."""
        state = self._state
        async with _events(
            self._client, state.selection, "status", "progress", "queue", "deleted"
        ) as events:
            async for event in events:
                progress = event.job.get("progress")
                if event.type == "progress" and event.job_id and progress:
                    state.move(event.job_id, msgspec.convert(progress, Progress))
                    self._draw()
                else:
                    self._changed.set()

    # --- from the user

    def press(self, key: str) -> None:
        state = self._state
        if state.typing is not None:
            self._type(key)
        elif self._action is not None:
            action, self._action = self._action, None
            state.message = ""
            if key == "y" and (job_id := state.chosen) is not None:
                self._start(self._act(action, job_id))
        elif key == "q":
            self._quit.set()
        elif key in ("j", "k"):
            state.move_cursor(1 if key == "j" else -1)
        elif key == ENTER and state.open is None:
            state.open, state.details, state.log = state.chosen, None, []
            self._start(self._load_open())
        elif key == ESCAPE:
            state.open, state.message = None, ""
        elif key == "/":
            state.typing = state.q
        elif key == "f":
            state.only_failed = not state.only_failed
            self._changed.set()
        elif key in ("c", "r"):
            self._ask("cancel" if key == "c" else "retry")
        self._draw()

    def _type(self, key: str) -> None:
        state = self._state
        assert state.typing is not None
        if key == ENTER:
            state.q, state.typing = state.typing.strip(), None
            self._start(self.load())
        elif key == ESCAPE:
            state.typing = None
        elif key == BACKSPACE:
            state.typing = state.typing[:-1]
        elif key.isprintable():
            state.typing += key

    def _ask(self, action: str) -> None:
        job = self._state.chosen_job
        if job is None:
            return
        if job.status not in POSSIBLE[action]:
            self._state.message = f"Cannot {action} {job.job_id}: it is {job.status}"
            return
        self._action = action
        self._state.message = f"{action.capitalize()} {job.kind} {job.job_id}? y/n"

    async def _act(self, action: str, job_id: str) -> None:
        await (self._client.cancel(job_id) if action == "cancel" else self._client.retry(job_id))
        await self.load()
