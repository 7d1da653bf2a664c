"""The settings of a command: flags, then BIDE_* variables, then bide.toml.

bide.toml has a table [client] (url, key_file) for every command that talks to a service, and may have one for any other
command under its name, such as [serve]. [limits] applies to `bide serve` and `bide worker`, [admission] to
`bide serve`. An unknown name is rejected, because it would have no effect.
"""

from __future__ import annotations

import asyncio
import functools
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from bide.cli import COMMANDS
from bide.cli.login import stored_key
from bide.client import DEFAULT_URL

if TYPE_CHECKING:
    from bide.client.client import AsyncClient
    from bide.server.config import AdmissionConfig, LimitsConfig

CLIENT_SETTINGS = {"url", "key_file"}
# The commands that talk to a service, and those of groups.
CLIENT_COMMANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("audit", "cancel", "delete", "events", "list", "log", "retry"), ()),
    **dict.fromkeys(("status", "submit", "wait", "watch"), ()),
    "keys": ("create", "list", "rotate", "revoke"),
    "queue": ("list", "pause", "resume"),
    "webhooks": ("create", "list", "test", "replay", "delete"),
}
Command = TypeVar("Command", bound=Callable[..., Any])


# In the `meta` of click's context.
LIMITS = "bide.limits"
ADMISSION = "bide.admission"
T = TypeVar("T")


def load(ctx: click.Context, config: Path | None) -> None:
    """Read bide.toml into the context of the command."""
    path = config or Path("bide.toml")
    if config is None and not path.is_file():
        return
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None
    if "limits" in tables:
        from bide.server.config import LimitsConfig

        ctx.meta[LIMITS] = _read(path, tables, "limits", LimitsConfig.read)
    if "admission" in tables:
        from bide.server.config import AdmissionConfig

        ctx.meta[ADMISSION] = _read(path, tables, "admission", AdmissionConfig.read)
    ctx.default_map = _default_map(path, tables)


def limits() -> LimitsConfig:
    """Return the table [limits] of bide.toml."""
    from bide.server.config import LimitsConfig

    found: LimitsConfig | None = click.get_current_context().meta.get(LIMITS)
    return found or LimitsConfig()


def admission() -> AdmissionConfig:
    """Return the table [admission] of bide.toml."""
    from bide.server.config import AdmissionConfig

    found: AdmissionConfig | None = click.get_current_context().meta.get(ADMISSION)
    return found or AdmissionConfig()


def _read(path: Path, tables: dict[str, Any], name: str, read: Callable[[Any], T]) -> T:
    table = tables.pop(name)
    if not isinstance(table, dict):
        raise click.UsageError(f"{path}: {name} is not a table. Write [{name}]")
    try:
        return read(table)
    except ValueError as error:
        raise click.UsageError(f"{path}: {error}") from None


def _default_map(path: Path, tables: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the commands, in click's form."""
    known = {"client", *COMMANDS} - {*CLIENT_COMMANDS, "api", "login", "logout"}
    for name, table in tables.items():
        if name not in known or not isinstance(table, dict):
            raise click.UsageError(
                f"{path}: unknown table [{name}]. Known tables: {', '.join(sorted({'admission', 'limits', *known}))}"
            )
    client = _client(path, tables.get("client", {}))
    own = {name: _underscored(table) for name, table in tables.items() if name != "client"}
    clients = {
        name: dict.fromkeys(commands, client) if commands else client
        for name, commands in CLIENT_COMMANDS.items()
    }
    return {**clients, **own}


def _client(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    settings = _underscored(table)
    unknown = set(settings) - CLIENT_SETTINGS
    if unknown:
        raise click.UsageError(
            f"{path}: unknown settings in [client]: {', '.join(sorted(unknown))}. "
            f"Known settings: {', '.join(sorted(CLIENT_SETTINGS))}"
        )
    if "key_file" in settings:  # relative to bide.toml, whatever the working directory is
        settings["key_file"] = str(path.parent / str(settings["key_file"]))
    return settings


def _underscored(table: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in table.items()}


@dataclass(frozen=True)
class Connection:
    """The service that a command talks to."""

    url: str
    key: str | None = field(default=None, repr=False)
    key_by_flag: bool = False
    url_by_flag: bool = False
    set_aside: tuple[str, ...] = ()  # settings that apply only to a bide service
    key_by_login: bool = False  # `bide login` has stored the key for this URL

    def client(self) -> AsyncClient:
        from bide.client.client import AsyncClient

        return AsyncClient(self.url, self.key)

    def run(self, use: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """Return what `use` returns."""

        async def run() -> T:
            async with self.client() as client:
                return await use(client)

        return asyncio.run(run())

    def key_for(self, url: str) -> str | None:
        """Return the key if it is meant for the service at this URL: that of the settings, or given with the key; or
        the key that `bide login` has stored for it.
        """
        if self.key_by_flag or (self.key is not None and url.rstrip("/") == self.url.rstrip("/")):
            return self.key
        return stored_key(url)


def speaks_to_service(command: Command) -> Command:
    """Give a command --url, --key and --key-file, and pass it the Connection that they describe."""

    @click.option(
        "--url",
        envvar="BIDE_URL",
        default=DEFAULT_URL,
        show_default=True,
        help="The URL of the service.",
    )
    @click.option("--key", envvar="BIDE_KEY", help="The credential. Prefer --key-file or BIDE_KEY.")
    @click.option(
        "--key-file",
        envvar="BIDE_KEY_FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with the credential.",
    )
    @click.pass_context
    def with_connection(
        ctx: click.Context, /, url: str, key: str | None, key_file: Path | None, **options: Any
    ) -> Any:
        of_key, of_file = ctx.get_parameter_source("key"), ctx.get_parameter_source("key_file")
        flag = ParameterSource.COMMANDLINE
        if key is not None and key_file is not None and of_key is of_file is flag:
            raise click.UsageError("--key and --key-file exclude each other: give one of them")
        # A flag outranks a variable; between two of the same source, the key outranks the file.
        if key_file is not None and (key is None or of_file is flag):
            key = key_file.read_text(encoding="utf-8").strip()
        at = ctx.get_parameter_source("url") is flag
        stored = stored_key(url) if key is None else None
        by_flag = flag in (of_key, of_file)
        connection = Connection(
            url, key or stored, by_flag, at, _set_aside(ctx), key_by_login=stored is not None
        )
        return command(connection=connection, **options)

    return cast(Command, functools.update_wrapper(with_connection, command))


def _set_aside(ctx: click.Context) -> tuple[str, ...]:
    """Return the variables and settings, not flags, that name a bide service or its key."""
    names = {"url": "BIDE_URL", "key": "BIDE_KEY", "key_file": "BIDE_KEY_FILE"}
    sources = {name: ctx.get_parameter_source(name) for name in names}
    variables = [names[name] for name in names if sources[name] is ParameterSource.ENVIRONMENT]
    settings = [f"[client] {name}" for name in names if sources[name] is ParameterSource.DEFAULT_MAP]
    return (*variables, *settings)
