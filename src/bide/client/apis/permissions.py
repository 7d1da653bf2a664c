"""The permissions of a description that does not come with bide: the secrets that it reads, the hosts that it sends them
to, and the code that it runs."""

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
class Permissions:
    file: str
    # Of the file, its permissions and the code that it runs: after a change the user must confirm again.
    digest: str
    secrets: tuple[str, ...]  # each as text for the user
    code: tuple[str, ...]  # each as text for the user
    hosts: tuple[str, ...]  # where the secrets go
    outputs: tuple[str, ...] = ()  # files outside its folder that it writes
    reason: str = ""  # why the user must confirm, if not because of the file

    def __bool__(self) -> bool:
        return bool(self.secrets or self.code or self.outputs)


@dataclass(frozen=True)
class DescriptionFile:
    """The file of a description, and the options that the user gave with it. `url`: the user gave this URL.

    `key`: the user gave a key, so the secret of the description is not read. The user must confirm the key like a secret,
    unless it is sent only to `url`.
    """

    text: str
    file: str
    folder: Path
    url: str | None = None
    key: bool = False
    typed: bool = True  # False: `url` comes from a ledger


def permissions(
    form: Description, description: DescriptionFile, more: tuple[Placed, ...] = ()
) -> Permissions:
    """Return the permissions of a description. `more` are secrets that another file names, such as a pipeline."""
    auth = form.auth
    places = [auth.user, auth.client_id, auth.refresh_token]
    if auth.kind == "none":
        places = []
    elif not description.key and not more:
        places = [auth.secret, *places]
    places += auth.headers.values()
    placed = [(place, description.folder) for place in places if isinstance(place, Secret)]
    placed += more
    secrets = [word for place, folder in placed for word in _read(place, folder)]
    given = description.typed and (description.url is not None or form.url is None)
    if description.key and not (given and not auth.hosts and auth.kind != "oauth2"):
        secrets.insert(0, GIVEN_KEY)
    code = [f"the command `{shlex.join(place.command)}`" for place, _ in placed if place.command]
    if form.hook is not None:
        code.append(f"the Python code {form.hook}")
    urls = [description.url or form.url, auth.token_url if auth.kind == "oauth2" else None]
    hosts = [urlsplit(url).netloc.rpartition("@")[2] for url in urls if url is not None]
    if urls[0] is None:
        hosts.append(ANYWHERE)
    commands = [place.command for place, _ in placed if place.command]
    sources = code_digests(commands, form.hook)
    digest = hashlib.sha256(msgspec.json.encode([description.text, secrets, code, *sources])).hexdigest()
    return Permissions(
        description.file,
        digest,
        tuple(dict.fromkeys(secrets)),
        tuple(dict.fromkeys(code)),
        tuple(dict.fromkeys([*hosts, *auth.hosts])),
    )


def permissions_at(form: Description, base: str, key: bool) -> Permissions:
    """Return the permissions of a description that comes with bide at a URL from a ledger. `key`: a key was given."""
    name = f"{form.name} of the ledger"  # not the text, because it differs between versions of bide
    found = permissions(form, DescriptionFile(name, name, Path(), base, key))
    secrets = tuple(dict.fromkeys([GIVEN_KEY, *found.secrets])) if key else found.secrets
    reason = f"The ledger has jobs of {form.name} at a URL that neither you nor its description names."
    digest = hashlib.sha256(msgspec.json.encode([name, secrets])).hexdigest()
    return replace(found, digest=digest, secrets=secrets, reason=reason)


def _read(place: Secret, folder: Path) -> list[str]:
    """Describe the sources of a secret. A file has its real path, because `folder` may contain symbolic links."""
    names = [place.env] if isinstance(place.env, str) else place.env
    found = [f"the environment variable {name}" for name in names]
    if place.file is not None:
        found.append(f"the file {os.path.realpath(folder / Path(place.file).expanduser())}")
    if place.command:
        found.append(f"the output of the command `{shlex.join(place.command)}`")
    return found
