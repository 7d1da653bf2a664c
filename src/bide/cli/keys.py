"""`bide keys`: API keys, over HTTP or in the store of a service that does not run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from bide.cli import options
from bide.cli.output import json_option, print_json, print_line, print_records
from bide.cli.settings import Connection, speaks_to_service
from bide.core.clock import read_instant

if TYPE_CHECKING:
    from bide.client.client import AsyncClient
    from bide.server.identities import Scope
    from bide.server.identities.keys import ApiKeys

T = TypeVar("T")
SCOPES = ("read", "submit", "control", "admin")
_TENANT = re.compile(r"-|[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
Command = Callable[..., Any]


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys.

    With --data or --store, the command changes the store directly, for example to create the first key. Otherwise it sends
    requests to the service at --url, and needs a key with the scope `admin`.

    \b
    Examples:
      bide keys create --data bide-data --scope admin --name operator
      bide keys create --scope read,submit --tenant acme --expires 90d
      bide keys list
      bide keys rotate 4t9hq2m0xk1c --overlap 1h
      bide keys revoke 4t9hq2m0xk1c
    """


def _stored(command: Command) -> Command:
    """Give a command --data and --store, and those of `speaks_to_service`."""
    data = click.option(
        "--data", type=click.Path(path_type=Path), help="The data folder of a service that does not run."
    )
    store = click.option("--store", metavar="URL", help=options.STORE_HELP)
    return data(store(speaks_to_service(command)))


def _run(
    connection: Connection,
    data: Path | None,
    store: str | None,
    stored: Callable[[ApiKeys], Awaitable[T]],
    remote: Callable[[AsyncClient], Awaitable[T]],
) -> T:
    if data is None and store is None:
        return connection.run(remote)

    async def run() -> T:
        from bide.server.config import Config, StoreConfig
        from bide.service.assembly import open_keys

        config = Config(data=data or Path("bide-data"), store=StoreConfig(store))
        async with open_keys(config) as found:
            return await stored(found)

    return asyncio.run(run())


def _read_scopes(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> list[str]:
    names = [name.strip() for text in value for name in text.split(",")]
    for name in names:
        if name not in SCOPES:
            raise click.BadParameter(f"{name!r} is not a scope; use {', '.join(SCOPES)}")
    return names


def _read_tenant(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _TENANT.fullmatch(value):
        raise click.BadParameter(
            f"{value!r} is not the name of a tenant; use at most 100 letters, digits, '_', '.' and '-'"
        )
    return value


def _read_overlap(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    seconds = options.read_duration(value)
    if seconds is None:
        raise click.BadParameter(f"{value!r} is not a duration such as 0s, 30m, 24h or 7d")
    return seconds


def _wire(key: Any, text: str | None = None, used_at: float | None = None) -> dict[str, Any]:
    import msgspec

    from bide.server.http.keys import wire_key, wire_key_with_secret

    shown = wire_key(key, used_at) if text is None else wire_key_with_secret(key, text)
    return cast(dict[str, Any], msgspec.to_builtins(shown))


def _print_secret(made: dict[str, Any], what: str, as_json: bool) -> None:
    """The key alone on stdout, so that a script can store it."""
    if as_json:
        print_json(made)
        return
    print_line(
        f"{what} {made['id']}: tenant {made['tenant']}, {', '.join(made['scopes'])}, "
        f"{'expires ' + made['expiresAt'] if made['expiresAt'] else 'does not expire'}",
        err=True,
    )
    print_line("the key, which is shown only once:", err=True)
    print_line(made["key"])


@keys.command()
@click.option("--name", default="", help="The purpose of the key, for `bide keys list`.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    callback=_read_scopes,
    metavar="SCOPE",
    help="read, submit, control or admin; repeated, or separated by commas. By default all except admin.",
)
@click.option(
    "--tenant",
    callback=_read_tenant,
    help="The tenant of the key; by default that of your own key, or `-` with --data or --store.",
)
@click.option(
    "--expires",
    callback=options.read_future,
    metavar="DURATION|INSTANT",
    help="When the key becomes invalid: 12h, 90d, or an RFC 3339 instant. By default never.",
)
@json_option
@_stored
def create(
    connection: Connection,
    data: Path | None,
    store: str | None,
    name: str,
    scopes: list[str],
    tenant: str | None,
    expires: str | None,
    as_json: bool,
) -> None:
    """Create a key and print it. It cannot be printed again.

    \b
    Examples:
      bide keys create --data bide-data --scope admin --name operator
      bide keys create --store postgresql://bide@db.example.org/jobs --scope read,submit,control --tenant acme
      bide keys create --scope read --name dashboard --expires 90d
    """

    async def in_store(found: ApiKeys) -> dict[str, Any]:
        from bide.server.identities import DEFAULT_SCOPES, DEFAULT_TENANT

        key, text = await found.create(
            tenant=tenant or DEFAULT_TENANT,
            scopes=cast("list[Scope]", scopes) or DEFAULT_SCOPES,
            name=name,
            expires_at=None if expires is None else read_instant(expires),
        )
        return _wire(key, text)

    made = _run(
        connection,
        data,
        store,
        in_store,
        lambda client: client.create_key(name=name, scopes=scopes, tenant=tenant, expires_at=expires),
    )
    _print_secret(made, "created", as_json)


@keys.command("list")
@json_option
@_stored
def list_keys(connection: Connection, data: Path | None, store: str | None, as_json: bool) -> None:
    """List the keys of all tenants, without their secrets.

    \b
    Examples:
      bide keys list
      bide keys list --data bide-data --json
    """

    async def in_store(found: ApiKeys) -> list[dict[str, Any]]:
        return [_wire(key, used_at=used_at) for key, used_at in await found.find_all()]

    known = _run(connection, data, store, in_store, lambda client: client.keys())
    columns = ["id", "name", "tenant", "scopes", "createdAt", "expiresAt", "lastUsedAt"]

    def row(key: dict[str, Any]) -> list[str]:
        return [", ".join(key[c]) if c == "scopes" else str(key[c] or "") for c in columns]

    print_records(known, as_json, columns, row, empty="no keys")


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option(
    "--overlap",
    default="24h",
    show_default=True,
    callback=_read_overlap,
    metavar="DURATION",
    help="How long the previous secret stays valid: 0s, 30m, 24h or 7d.",
)
@json_option
@_stored
def rotate(
    connection: Connection,
    data: Path | None,
    store: str | None,
    key_id: str,
    overlap: float,
    as_json: bool,
) -> None:
    """Replace the secret of a key, and print the new key. The previous one stays valid for --overlap.

    \b
    Examples:
      bide keys rotate 4t9hq2m0xk1c
      bide keys rotate 4t9hq2m0xk1c --overlap 0s
    """

    async def in_store(found: ApiKeys) -> dict[str, Any]:
        return _wire(*await found.rotate(key_id, overlap))

    made = _run(
        connection, data, store, in_store, lambda client: client.rotate_key(key_id, overlap=overlap)
    )
    _print_secret(made, "rotated", as_json)


@keys.command()
@click.argument("key_id", metavar="ID")
@json_option
@_stored
def revoke(
    connection: Connection, data: Path | None, store: str | None, key_id: str, as_json: bool
) -> None:
    """Revoke a key. It stops working within seconds, and its open streams end.

    \b
    Examples:
      bide keys revoke 4t9hq2m0xk1c
    """

    async def in_store(found: ApiKeys) -> None:
        await found.revoke(key_id)

    _run(connection, data, store, in_store, lambda client: client.revoke_key(key_id))
    if as_json:
        print_json({"id": key_id, "revoked": True})
    else:
        print_line(f"{key_id} is revoked")
