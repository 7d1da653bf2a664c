"""Runs one page as a reader would: in an empty folder, from top to bottom. `pages` has the rules."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.docs.pages import LANGUAGES, ROOT, Block, Command, commands, fits
from tests.docs.sessions import START, Python, Service, Shell
from tests.servers.ports import free_port
from tests.servers.warm import warm

NODE = Path(sys.prefix) / "node" / "node_modules"
OTHERS = (
    *("uvicorn", "python lms.py", "python shop.py", "node receiver.mjs"),
    *("python -m bide.lab.vendor", "python -m http.server"),
)
SERVERS = ("bide serve", *OTHERS, "bide worker", "celery -A")
WORKERS = ("bide worker", "celery -A")
# These commands would change the machine that runs the tests. NOT_RUN names the pages with them.
OUT_OF_BOUNDS = ("pip ", "make ", "npm ")
BIDE_PORT, OTHER_PORT = "8642", "8000"  # as pages write them; each run replaces them with free ones
# The same, for pages with a database, a broker or a bucket.
DATABASE_PORT, BROKER_PORT, STORAGE_PORT = "5432", "6379", "9000"


class Run:
    """The reader's folder, terminal and interpreter."""

    def __init__(
        self,
        folder: Path,
        logs: Path,
        programs: Path | None,
        servers: Mapping[str, int],
        settings: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._programs = programs  # a folder whose programs come before all others
        self._logs = logs
        self._ports = {BIDE_PORT: free_port(), OTHER_PORT: free_port()}
        self._ports.update(servers)
        self._env = {**self._environment(), **settings}
        self._shell: Shell | None = None
        self._python: Python | None = None
        self._services: dict[str, Service] = {}
        self._printed: str | None = None
        self._ends = contextlib.ExitStack()

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("BIDE_")}
        port = self._ports[BIDE_PORT]
        path = [self._programs, warm().folder, Path(sys.executable).parent, kept.get("PATH", "")]
        return {
            **kept,
            "PATH": ":".join(str(folder) for folder in path if folder),
            "BIDE_PORT": str(port),
            "BIDE_URL": f"http://127.0.0.1:{port}",
            "BIDE_WORKERS": "1",  # as on a machine with one core: each child takes 0.2 s of processor time to start
            "NO_COLOR": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a reader's pytest has not our plugins
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self._logs),  # the programs are killed in the end, and remove nothing
        }

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def block(self, block: Block) -> None:
        """AssertionError when the block does not do what the page says."""
        if block.language not in LANGUAGES:
            raise AssertionError(
                f"{block.place}: the runner knows no {block.language or 'unnamed'!r} block"
            )
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        if block.language == "js":
            assert block.title is not None, f"{block.place}: a js block needs a title"
            self._install_module()
        if block.title is not None:
            self._write(block, block.title)
        elif block.language == "python":
            self._execute(block)
        elif block.language == "console":
            self._type(block)
        elif block.words == ["output"]:
            self._compare(block, block.text, self._printed)
            self._printed = None

    def _install_module(self) -> None:
        """As `npm install` of the folder, and of the package that the receiver of webhooks uses."""
        modules = self._folder / "node_modules"
        if not modules.exists():
            modules.mkdir()
            (modules / "bide").symlink_to(ROOT / "src" / "bide" / "ui")
            (modules / "standardwebhooks").symlink_to(NODE / "standardwebhooks")

    def _here(self, text: str) -> str:
        for shown, real in self._ports.items():
            text = text.replace(shown, str(real))
        return text

    def _shown(self, text: str) -> str:
        for shown, real in self._ports.items():
            text = text.replace(str(real), shown)
        return text

    def _write(self, block: Block, title: str) -> None:
        path = self._folder / title
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() + "\n\n" if "add" in block.words else ""
        path.write_text(before + self._here(block.text))

    def _execute(self, block: Block) -> None:
        if self._python is None:
            self._python = Python(self._folder, self._env)
            self._ends.callback(self._python.close)
        output, code = self._python.run(self._here(block.text))
        self._printed = self._shown(output)
        assert code == 0, f"{block.place}:\n{self._printed}"

    def _type(self, block: Block) -> None:
        typed = commands(block)
        for number, command in enumerate(typed, 1):
            assert not command.text.startswith(OUT_OF_BOUNDS), f"{block.place}: `{command.text}`"
            if command.text.startswith(SERVERS):
                self._serve(command)
                continue
            output, code = self._in_shell(command.text)
            output = self._shown(output)
            wanted = block.exit_code if number == len(typed) else 0
            assert code == wanted, (
                f"{block.place}: `{command.text}` ended with {code}:\n{output}\n{self._log()}"
            )
            if command.output is not None:
                self._compare(block, command.output, output, f"`{command.text}`")

    def _in_shell(self, command: str) -> tuple[str, int]:
        if self._shell is None:
            self._shell = Shell(self._folder, self._env)
            self._ends.callback(self._shell.close)
        return self._shell.run(self._here(command))

    def _compare(self, block: Block, expected: str, output: str | None, what: str = "it") -> None:
        assert output is not None, f"{block.place}: no output before this block"
        assert fits(expected, output), (
            f"{block.place}: {what} printed\n{output}\n--- and not\n{expected}\n{self._log()}"
        )

    def _serve(self, command: Command) -> None:
        program = next(s for s in SERVERS if command.text.startswith(s))
        name = command.text if program in WORKERS else program  # of workers there may be several
        for known, running in self._services.items():
            if known == name or (program in OTHERS and known in OTHERS):  # they have the same port
                running.stop()
        port = self._ports[OTHER_PORT if program in OTHERS else BIDE_PORT]
        log = self._logs / "service.log"
        here = Path(self._in_shell("pwd")[0])  # a page may have gone elsewhere
        lines = self._in_shell("env")[0].splitlines()
        exported = dict(line.split("=", 1) for line in lines if line.startswith(("BIDE_", "PG")))
        answers = None if program in WORKERS else port
        env = {**self._env, **exported}
        service = Service(self._here(command.text), answers, here, env, log)
        self._services[name] = service
        self._ends.callback(service.stop)
        if program == "bide serve":
            _until_warm(port)
        elif program == "bide worker":
            _until_ready(port)

    def _log(self) -> str:
        log = self._logs / "service.log"
        return f"--- the service said\n{log.read_text()[-3000:]}" if log.exists() else ""


def run(
    blocks: list[Block],
    folder: Path,
    logs: Path,
    not_run: Mapping[str, str],
    *,
    curl: bool = shutil.which("curl") is not None,
    servers: Mapping[str, int] | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Runs the blocks of one page, except those whose first line is in `not_run`. `servers`: ports as the page writes
    them, and as they are. `settings`: variables of the reader's shell.
    """
    programs = None if curl else _with_curl(logs)
    with Run(folder, logs, programs, servers or {}, settings or {}) as page:
        for block in blocks:
            if first_line(block) not in not_run and block.hour is None:
                page.block(block)


def _until_warm(port: int) -> None:
    """Until the handler children have started: a reader types no faster. A service that needs a key does not tell."""
    until = time.monotonic() + START
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/workers", timeout=START) as answer:
                if all(worker["state"] != "starting" for worker in json.load(answer)["workers"]):
                    return
        except urllib.error.HTTPError as error:
            assert error.code == 401, error
            return
        time.sleep(0.05)
    raise AssertionError(f"the handler children did not start within {START:g} s")


def _until_ready(port: int) -> None:
    """Wait until the service has a worker for its jobs."""
    until = time.monotonic() + START
    while time.monotonic() < until:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=START) as answer:
            if not json.load(answer)["warnings"]:
                return
        time.sleep(0.05)
    raise AssertionError(f"no worker was ready within {START:g} s")


def _with_curl(folder: Path) -> Path:
    """For a machine that has none."""
    program = folder / "curl"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("curl.py")}" "$@"\n'
    )
    program.chmod(0o755)
    return folder


def first_line(block: Block) -> str:
    """Without the comment that a page may put behind it."""
    return block.text.split("\n", 1)[0].split("  #")[0].rstrip()
