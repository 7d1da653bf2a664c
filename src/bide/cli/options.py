"""Options that several commands share: the flag, its environment variable, its type and its default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]
STORE_HELP = "postgresql://user@host/database; by default SQLite in the data folder."


def data(help: str = "The data folder.") -> Option[Any]:
    return click.option(
        "--data",
        envvar="BIDE_DATA",
        default="bide-data",
        show_default=True,
        type=click.Path(path_type=Path),
        help=help,
    )


def address(name: str, help: str, *, required: bool = False) -> Option[Any]:
    """The URL of another server: --store, --broker, --blobs, --progress."""
    variable = f"BIDE_{name.upper()}"
    return click.option(f"--{name}", envvar=variable, metavar="URL", required=required, help=help)


def names(flag: str, help: str, *, envvar: str) -> Option[Any]:
    """Names separated by commas; in bide.toml also a list."""

    def split(ctx: click.Context, param: click.Parameter, value: Any) -> tuple[str, ...]:
        found = value.split(",") if isinstance(value, str) else value
        return tuple(filter(None, (str(name).strip() for name in found)))

    return click.option(
        flag, envvar=envvar, type=click.UNPROCESSED, default="", callback=split, metavar="a,b", help=help
    )


def connections(default: int) -> Option[Any]:
    return click.option(
        "--connections",
        envvar="BIDE_CONNECTIONS",
        default=default,
        show_default=True,
        type=click.IntRange(3),
        help="Connections to PostgreSQL for reads; up to three more write, listen, and store progress.",
    )


def lease(help: str) -> Option[Any]:
    return click.option(
        "--lease",
        envvar="BIDE_LEASE",
        default=30.0,
        show_default=True,
        type=click.FloatRange(0.5),
        help=help,
    )


def drain() -> Option[Any]:
    return click.option(
        "--drain",
        envvar="BIDE_DRAIN",
        default=30.0,
        show_default=True,
        type=click.FloatRange(0),
        help="Seconds that a shutdown waits for running jobs.",
    )


def log_level() -> Option[Any]:
    return click.option(
        "--log-level",
        envvar="BIDE_LOG_LEVEL",
        default="INFO",
        show_default=True,
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    )
