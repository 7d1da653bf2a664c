"""What a description that does not come with bide does on this machine: the secrets that it reads, where it sends them,
and the code that it runs."""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bide.client.apis.code_files import code_digests
from bide.client.apis.form import Description, Secret

ANYWHERE = "the address that you give"
GIVEN_KEY = "the key that you gave"
Placed = tuple[Secret, Path]  # a secret, and the folder that its file is relative to


@dataclass(frozen=True)
class Demands:
    file: str
    digest: str  # of the file, of what it demands and of the code that it runs: after a change it is asked about again
    secrets: tuple[str, ...]  # what it reads, in words
    code: tuple[str, ...]  # what it runs, in words
    hosts: tuple[str, ...]  # where the secrets go
    outputs: tuple[str, ...] = ()  # files outside its folder that it writes
    reason: str = ""  # why the user is asked, if not because of the file

    def __bool__(self) -> bool:
        return bool(self.secrets or self.code or self.outputs)


@dataclass(frozen=True)
class Asked:
    """One file, and what is known beside it. `url`: the user gave this address.

    `key`: the user gave a key, so the description's own secret is not read. The key is confirmed like a secret unless it
    goes only to `url`.
    """

    text: str
    file: str
    folder: Path
    url: str | None = None
    key: bool = False
    typed: bool = True  # False: `url` comes from a ledger


def demands(form: Description, asked: Asked, more: tuple[Placed, ...] = ()) -> Demands:
    """`more` are secrets that something else than the description names, a pipeline for instance."""
    auth = form.auth
    places = [auth.user, auth.client_id, auth.refresh_token]
    if auth.kind == "none":
        places = []
    elif not asked.key and not more:
        places = [auth.secret, *places]
    placed = [(place, asked.folder) for place in places if isinstance(place, Secret)]
    placed += more
    secrets = [word for place, folder in placed for word in _read(place, folder)]
    given = asked.typed and (asked.url is not None or form.url is None)
    if asked.key and not (given and not auth.hosts and auth.kind != "oauth2"):
        secrets.insert(0, GIVEN_KEY)
    code = [f"the command `{shlex.join(place.command)}`" for place, _ in placed if place.command]
    if form.hook is not None:
        code.append(f"the Python code {form.hook}")
    goals = [asked.url or form.url, auth.token_url if auth.kind == "oauth2" else None]
    hosts = [urlsplit(url).netloc.rpartition("@")[2] for url in goals if url is not None]
    if goals[0] is None:
        hosts.append(ANYWHERE)
    commands = [place.command for place, _ in placed if place.command]
    sources = code_digests(commands, form.hook)
    digest = hashlib.sha256(msgspec.json.encode([asked.text, secrets, code, *sources])).hexdigest()
    return Demands(
        asked.file,
        digest,
        tuple(dict.fromkeys(secrets)),
        tuple(dict.fromkeys(code)),
        tuple(dict.fromkeys([*hosts, *auth.hosts])),
    )


def demands_at(form: Description, base: str, key: bool) -> Demands:
    """What a description that comes with bide sends to an address of a ledger. `key`: a key was given."""
    name = f"{form.name} of the ledger"  # not the text: another version of bide has another one
    found = demands(form, Asked(name, name, Path(), base, key))
    secrets = tuple(dict.fromkeys([GIVEN_KEY, *found.secrets])) if key else found.secrets
    reason = (
        f"The ledger has jobs of {form.name} at an address that neither you nor its description names."
    )
    digest = hashlib.sha256(msgspec.json.encode([name, secrets])).hexdigest()
    return replace(found, digest=digest, secrets=secrets, reason=reason)


def _read(place: Secret, folder: Path) -> list[str]:
    """In words; a file with its real path, because `folder` and the links in it decide which file is read."""
    names = [place.env] if isinstance(place.env, str) else place.env
    found = [f"the environment variable {name}" for name in names]
    if place.file is not None:
        found.append(f"the file {os.path.realpath(folder / Path(place.file).expanduser())}")
    if place.command:
        found.append(f"the output of the command `{shlex.join(place.command)}`")
    return found
