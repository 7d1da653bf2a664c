"""Asks the user before a description that does not come with bide reads a secret, sends it or runs code, and before a
pipeline reads or writes files outside its folder.

1. A confirmation is stored per content of the file and host, in `bide/trusted.json` in the user's configuration folder.
   After any change bide asks again.
2. Without a terminal bide does not ask: --trust confirms, and without it the command exits with code 2.
3. --trust works as a flag and as an environment variable. A bide.toml beside a hostile description cannot set it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bide.cli.user_files import user_file, write_user_file
from bide.client.apis.permissions import Permissions
from bide.client.terminal_text import harmless

TRUSTED = "trusted.json"


def _given(ctx: click.Context, parameter: click.Parameter, value: bool) -> bool:
    source = ctx.get_parameter_source(parameter.name or "")
    if value and source not in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
        raise click.UsageError("bide.toml cannot set `trust`. Give --trust on the command line.")
    return value


trust_option = click.option(
    "--trust",
    is_flag=True,
    callback=_given,
    help="Use a description that does not come with bide, and the secrets that it names, without asking.",
)


def confirm(found: Permissions, trusted: bool) -> None:
    """Return if the description may be used; raise click.UsageError otherwise."""
    if not found:
        return
    path = user_file(TRUSTED)
    known = _known(path)
    if _all_known(found, known):
        return
    if not trusted:
        if not _terminal():
            first = "Check the address" if found.reason else "Read the file"
            raise click.UsageError(
                f"{_explained(found)} {first}, then run this once in a terminal and confirm it, or add --trust."
            )
        click.echo(_explained(found), err=True)
        question = "Use this address?" if found.reason else "Use this description?"
        if not click.confirm(question, err=True):
            raise click.UsageError(f"You did not confirm {found.file}, so bide sent nothing.")
    try:
        write_user_file(path, [*known, *([found.digest, host] for host in found.hosts)])
    except OSError as error:
        click.echo(f"bide: cannot store the confirmation in {path}: {error.strerror}", err=True)


def remember(found: Permissions) -> None:
    """Store what the user gave on the command line, so that a later command does not ask."""
    path = user_file(TRUSTED)
    known = _known(path)
    if found and not _all_known(found, known):
        with suppress(OSError):
            write_user_file(path, [*known, *([found.digest, host] for host in found.hosts)])


def is_remembered(found: Permissions) -> bool:
    """Return whether the user has confirmed this, or given it on the command line."""
    return _all_known(found, _known(user_file(TRUSTED)))


def _all_known(found: Permissions, known: list[Any]) -> bool:
    return all([found.digest, host] in known for host in found.hosts)


def _explained(found: Permissions) -> str:
    said = [found.reason or f"{found.file} does not come with bide."]
    if found.secrets:
        said.append(f"It sends {_list(found.secrets)} to {_list(found.hosts)}.")
    if found.code:
        said.append(f"It runs {_list(found.code)}.")
    if found.outputs:
        said.append(f"It writes {_list(found.outputs)}.")
    return harmless(" ".join(said).replace("\n", "?"))  # the text contains parts of the file


def _list(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _known(path: Path) -> list[Any]:
    """Return pairs of a digest and a host. A file that belongs to another user, or that others can write, is ignored."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return []
            found = json.load(file)
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []
