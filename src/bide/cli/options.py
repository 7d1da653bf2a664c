"""Options that several commands share: the flag, its environment variable, its type and its default."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click

from bide.core.clock import read_instant

if TYPE_CHECKING:
    from bide.client.job_state import Expected

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
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


def _read_seconds(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> float | Literal["none"] | None:
    if value is None or value == "none":
        return None if value is None else "none"
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise click.BadParameter(
            f"{value!r} is not a number of seconds, 0 or more, or `none`", ctx, parameter
        )
    return found


def _read_window(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Expected | None:
    if value is None:
        return None
    low, sign, high = value.partition("-")
    try:
        found = (float(low), float(high if sign else low))
    except ValueError:
        found = (math.nan, math.nan)
    if not 0 < found[0] <= found[1] < math.inf:
        raise click.BadParameter(
            f"{value!r} is not a number of seconds such as 120, or a window such as 15-60",
            ctx,
            parameter,
        )
    return found if sign else found[0]


def read_duration(text: str) -> float | None:
    """The seconds of a duration such as 30m or 12h; None if the text is none."""
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and len(number) < 7:
        return float(int(number) * _UNITS[unit])
    return None


def read_past(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """An RFC 3339 instant, or a duration before now."""
    return _read_time(value, -1)


def read_future(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """An RFC 3339 instant, or a duration from now."""
    return _read_time(value, 1)


def _read_time(value: str | None, direction: int) -> str | None:
    if value is None:
        return None
    seconds = read_duration(value)
    if seconds is not None:
        return (datetime.now(UTC) + direction * timedelta(seconds=seconds)).isoformat()
    try:
        read_instant(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is neither an RFC 3339 instant nor a duration such as 30m, 12h or 90d"
        ) from None
    return value


def timeout(help: str) -> Option[Any]:
    from bide.client.options import LONGEST_WAIT

    return click.option(
        "--timeout",
        callback=_read_seconds,
        metavar="SECONDS|none",
        help=f"{help}  [default: {LONGEST_WAIT:.0f}, seven days]",
    )


def polling(command: Command) -> Command:
    """Add a flag for each of PollingOptions."""
    from bide.client.polling_options import POLLING_OPTIONS

    for name, (type, option) in reversed(POLLING_OPTIONS.items()):
        choices = [value for part in get_args(type) for value in get_args(part)]
        how: dict[str, Any] = {}
        if name == "expected":
            how = {"callback": _read_window, "metavar": "SECONDS|LOW-HIGH"}
        elif choices:
            how = {"type": click.Choice(choices)}
        else:
            high = None if option.high == math.inf else option.high
            how = {"type": click.FloatRange(option.low, high, min_open=option.above)}
        default = "" if option.default is None else f"  [default: {option.default:g}]"
        flag = option.flag or f"--{name.replace('_', '-')}"
        command = click.option(flag, name, help=option.help + default, **how)(command)
    return command


def traces(command: Command) -> Command:
    """Add the flags of traces."""
    command = click.option(
        "--trace-sample",
        envvar="BIDE_TRACE_SAMPLE",
        default=1.0,
        show_default=True,
        type=click.FloatRange(0, 1),
        help="The part of the jobs to trace, if their caller has not decided about its trace.",
    )(command)
    return click.option(
        "--otlp",
        envvar="BIDE_OTLP",
        metavar="URL",
        help="Export the spans of jobs to this OTLP/HTTP receiver, such as http://127.0.0.1:4318.",
    )(command)


def metrics() -> Option[Any]:
    return click.option(
        "--metrics",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file for the requests, refusals and budget of each API, in Prometheus's text format. It is replaced every "
        "15 seconds.",
    )


def log_format() -> Option[Any]:
    return click.option(
        "--log-format",
        envvar="BIDE_LOG_FORMAT",
        default="text",
        show_default=True,
        type=click.Choice(["text", "json"]),
        help="The form of the lines on stderr: text, or one JSON object per line.",
    )


def log_level() -> Option[Any]:
    return click.option(
        "--log-level",
        envvar="BIDE_LOG_LEVEL",
        default="INFO",
        show_default=True,
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
        help="Log only records of this level and above, on stderr.",
    )
