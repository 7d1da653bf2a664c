"""`bide login` and `bide logout`: API keys per service, in `bide/keys.json` in the user's configuration folder.

1. Only its owner can read the file (mode 0600). A file that others can read or write is not used.
2. A key is sent only to the URL for which it was stored, and only if no other key was given.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from bide.cli import Failure
from bide.cli.output import print_line
from bide.cli.user_files import user_file, write_user_file
from bide.client import DEFAULT_URL
from bide.core.errors import SetupError

KEYS = "keys.json"
url_option = click.option(
    "--url", envvar="BIDE_URL", default=DEFAULT_URL, show_default=True, help="The URL of the service."
)


@click.command()
@url_option
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the API key. By default the command asks for it.",
)
def login(url: str, key_file: Path | None) -> None:
    """Store an API key for a service. Commands that talk to it use the key, unless they get another one.

    \b
    Examples:
      bide login --url https://jobs.example.org
      bide login --url https://jobs.example.org --key-file operator.key
    """
    address = _address(url)
    if key_file is not None:
        key = key_file.read_text(encoding="utf-8").strip()
    elif sys.stdin.isatty():
        key = str(click.prompt("API key", hide_input=True, err=True)).strip()
    else:
        raise click.UsageError("The command cannot ask for the key without a terminal. Give --key-file.")
    if not key or not key.isascii() or any(letter.isspace() for letter in key):
        raise click.UsageError("The API key must have only ASCII characters, and no spaces.")
    _check(address, key)
    write_user_file(user_file(KEYS), {**_read(), address: key})
    print_line(f"stored the key for {address} in {user_file(KEYS)}", err=True)


@click.command()
@url_option
def logout(url: str) -> None:
    """Remove the stored API key of a service. The key stays valid: `bide keys revoke` revokes it.

    \b
    Examples:
      bide logout --url https://jobs.example.org
    """
    address, known = _address(url), _read()
    if address not in known:
        raise Failure(f"{user_file(KEYS)} has no key for {address}")
    del known[address]
    write_user_file(user_file(KEYS), known)
    print_line(f"removed the key for {address}", err=True)


def stored_key(url: str) -> str | None:
    """The key that `bide login` has stored for this URL; None if there is none, or if the URL has its own credential."""
    if "@" in urlsplit(url).netloc or not user_file(KEYS).exists():
        return None
    return _read().get(_address(url))


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"{url!r} is not a URL such as https://jobs.example.org")
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme.lower()}://{host}{parts.path.rstrip('/')}"


def _check(address: str, key: str) -> None:
    """Raise Failure if the service does not accept the key."""
    import asyncio

    from bide.client.http.transport import Transport, time_limit

    async def ask() -> int:
        transport = Transport(service=True)
        try:
            headers = {"Authorization": f"Bearer {key}"}
            sent = await transport.exchange(
                "GET", f"{address}/jobs?limit=1", headers, timeout=time_limit(0.0)
            )
            return sent.status
        finally:
            await transport.close()

    status = asyncio.run(ask())
    if status == 401:
        raise Failure(f"{address} does not accept this key: it is unknown, expired or revoked")
    if status not in (200, 403):  # 403: a key without the scope `read`
        raise Failure(f"{address} answered with status {status}; is it a bide service?")


def _read() -> dict[str, str]:
    path = user_file(KEYS)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise SetupError(
                    f"{path} has mode {status.st_mode & 0o777:o}, so others could read or change the keys in it. "
                    f"If you trust its content, run: chmod 600 {path}"
                )
            found: Any = json.load(file)
    except FileNotFoundError:
        return {}
    except ValueError:
        raise SetupError(f"{path} is not JSON. Remove it and run `bide login` again.") from None
    return {str(name): str(key) for name, key in found.items()} if isinstance(found, dict) else {}
