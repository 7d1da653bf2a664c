"""The command `bide`: a table of commands that are loaded when they are used, and how each of them reports an error.

Invariants:
1. No command shows a traceback: an error is one line on stderr that says what to do. BIDE_DEBUG=1 shows the traceback.
2. Exit codes: 0 done, 1 failed, 2 usage, 3 timed out, 130 interrupted.
3. Settings: flags, then BIDE_* variables, then bide.toml.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from bide.client.terminal_text import harmless

FAILED, TIMED_OUT, INTERRUPTED = 1, 3, 130

# name: (location, help text)
COMMANDS: dict[str, tuple[str, str]] = {
    "api": ("bide.cli.apis:api", "List, show and check descriptions of job APIs."),
    "audit": ("bide.cli.audit:audit", "List the audit log of a service, newest first."),
    "cancel": ("bide.cli.jobs:cancel", "Cancel jobs, by id or by a filter."),
    "completion": ("bide.cli.completion:completion", "Print the completion script of a shell."),
    "delete": ("bide.cli.jobs:delete", "Delete jobs and their files, by id or by a filter."),
    "demo": ("bide.cli.demo:demo", "Run a video pipeline as jobs and watch its progress."),
    "doctor": ("bide.cli.admin:doctor", "Check this installation."),
    "keys": ("bide.cli.keys:keys", "Create, list, rotate and revoke API keys."),
    "list": ("bide.cli.jobs:list_jobs", "List jobs, newest first."),
    "log": ("bide.cli.jobs:show_log", "Print the log of a job."),
    "login": ("bide.cli.login:login", "Store an API key for a service."),
    "logout": ("bide.cli.login:logout", "Remove the stored API key of a service."),
    "events": ("bide.cli.events:show_events", "Print events: of one job, or of all jobs."),
    "migrate": ("bide.cli.admin:migrate", "Update the schema of the store."),
    "queue": ("bide.cli.queue:queue", "List, pause and resume queues."),
    "retry": ("bide.cli.jobs:retry", "Run failed jobs again, by id or by a filter."),
    "serve": ("bide.cli.serve:serve", "Run the service of MODULE:app."),
    "simulate": (
        "bide.cli.simulate:simulate",
        "Compare polling policies: how many requests, how much delay.",
    ),
    "status": ("bide.cli.jobs:status", "Show the status of jobs."),
    "submit": ("bide.cli.submit:submit", "Send a job to a service."),
    "sync": ("bide.cli.sync:sync", "Run a pipeline: export, wait, download, normalize, publish."),
    "wait": ("bide.cli.wait:wait", "Wait for jobs and print how each ended."),
    "watch": ("bide.cli.watch:watch", "Watch running jobs, queues and failures."),
    "webhooks": ("bide.cli.webhooks:webhooks", "Create, list, test, replay and delete webhooks."),
    "worker": ("bide.cli.worker:worker", "Run jobs of MODULE:app for services with --engine celery."),
}


class Root(click.Group):
    """A group whose commands are imported one at a time, so that `bide --help` loads none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, 1)
            ctx.fail(f"There is no command {name!r}." + (f" Did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("bide: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if os.environ.get("BIDE_DEBUG"):
                raise
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # `bide list | head`: click ends quietly
            raise _failure(error) from error


class Failure(click.ClickException):
    """Any error, as one line."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        click.echo(f"bide: {self.format_message()}", err=True, file=file)


class TimedOut(Failure):
    exit_code = TIMED_OUT


def _failure(error: Exception) -> Failure:
    from bide.core.errors import BideError, WaitTimeout

    text = harmless(_explain(error, expected=isinstance(error, BideError | OSError)))
    return TimedOut(text) if isinstance(error, WaitTimeout) else Failure(text)


def _explain(error: Exception, *, expected: bool) -> str:
    from bide.core.errors import SetupError, WaitTimeout

    if isinstance(error, WaitTimeout):
        return error.describe("--timeout")
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        package = error.name.partition(".")[0]
        what = f"This needs the package {package}, which is not installed"
        extra = _extra_of(package)
        return what if extra is None else str(SetupError.not_installed(what, extra))
    if expected:
        return str(error) or type(error).__name__
    return f"unexpected {type(error).__name__}: {error}; BIDE_DEBUG=1 shows where"


def _extra_of(package: str) -> str | None:
    """The smallest extra of bide that installs this package."""
    from importlib.metadata import PackageNotFoundError, requires

    extras: dict[str, set[str]] = {}
    with suppress(PackageNotFoundError):
        for requirement in requires("bide") or ():  # such as `pydantic>=2.10; extra == 'server'`
            name, _, extra = requirement.partition("extra ==")
            found = extras.setdefault(extra.strip(" '\""), set())
            found.add(re.split(r"[^\w-]", name, maxsplit=1)[0].replace("-", "_").lower())
    having = [extra for extra, packages in extras.items() if extra and package.lower() in packages]
    return min(having, key=lambda extra: len(extras[extra]), default=None)


@click.group(
    cls=Root,
    context_settings={"auto_envvar_prefix": "BIDE", "help_option_names": ["-h", "--help"]},
    epilog="Each command has its own --help with examples. First steps: bide demo",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The settings file.  [default: bide.toml]",
)
@click.version_option(package_name="bide", message="bide %(version)s")
@click.pass_context
def root(ctx: click.Context, config: Path | None) -> None:
    """Long-running jobs over HTTP: run them, send them, wait for them.

    \b
    Examples:
      bide demo
      bide serve app:app
      bide submit transcode --input '{"height": 480}' --wait
      bide list --status ERROR
    """
    from bide.cli.settings import load

    load(ctx, config)


def main() -> None:
    root.main(prog_name="bide", args=sys.argv[1:])
