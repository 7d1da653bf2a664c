"""Credentials: read from an environment variable, a file or a command, and sent in a header.

1. A credential appears in no repr, no error and no log. A ledger stores only a keyed hash of it.
2. This module does no network I/O: if a token is needed first, `token_call` is the request and `take` reads its response.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bide.client.apis.answers import Answer, BadPoll, Call, Denied
from bide.client.apis.form import Auth, Secret
from bide.client.apis.requests import FORM_TYPE
from bide.client.apis.scrubber import hide
from bide.client.apis.values import number, text
from bide.core.errors import SetupError

COMMAND_TIMEOUT = 30.0
EARLY = 60.0  # seconds before its expiry at which a token is renewed; at half of a short lifetime
KNOWN = 16  # secrets that are removed from error messages
LIFETIME = 3600.0  # of a token without expires_in


class Credential:
    """Authenticates requests to an API. `Api.credential` creates it, and reads the secret with `renew`."""

    __slots__ = ("_auth", "_environ", "_folder", "_headers", "_key", "_raw")
    expires = False  # False: it is never `stale`

    def __init__(self, auth: Auth, key: str | None, environ: Mapping[str, str], folder: Path) -> None:
        self._auth = auth
        self._key = key
        self._environ = environ
        self._folder = folder
        self._headers: dict[str, str] = {}
        self._raw: tuple[str, ...] = ()  # the secrets that it was created from

    def __repr__(self) -> str:
        return f"<Credential {self._auth.kind}>"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers for a Call that is `authorized`."""
        return self._headers

    def source(self) -> str:
        """A sentence that names the sources of the credential; empty if the API needs none."""
        auth = self._auth
        if auth.kind not in ("none", "oauth2") and auth.header not in self._headers:
            return f"No credential was sent: {_where(auth.secret)}."
        places: list[Secret | str | None] = []
        if auth.kind == "oauth2" and auth.grant == "refresh_token":
            places = [auth.refresh_token]
        elif auth.kind != "none":
            user = (
                auth.client_id if auth.kind == "oauth2" else auth.user if auth.kind == "basic" else None
            )
            places = [user, auth.secret] if self._key is None else [user]
        places += [place for name, place in auth.headers.items() if name in self._headers]
        found = [_origin(place, self._environ) for place in places if isinstance(place, Secret)]
        names = " and ".join(dict.fromkeys(filter(None, found)))
        if self._key is not None and auth.kind != "none":
            return f"The credential is the one that you passed{f', and from {names}' if names else ''}."
        return f"The credential is from {names}." if names else ""

    def secrets(self) -> Iterator[str]:
        """Yield every secret that must not appear in messages: as it is sent, and as it was read."""
        for value in self._headers.values():
            secret = value.rpartition(" ")[2]
            yield secret
            if value.startswith("Basic "):
                yield base64.b64decode(secret).decode().partition(":")[2]
        yield from self._raw

    def fingerprint(self, salt: bytes) -> str:
        """Return a keyed hash that identifies the credential without revealing it."""
        hashed = hashlib.blake2b(key=hashlib.blake2b(salt, digest_size=32).digest(), digest_size=12)
        for part in self._identity:
            encoded = part.encode()
            hashed.update(len(encoded).to_bytes(4, "big") + encoded)
        return hashed.hexdigest()

    @property
    def _identity(self) -> tuple[str, ...]:
        """The values that identify the account."""
        return tuple(self._headers.values())

    def stale(self, now: float) -> bool:
        """Return whether a token is needed before the next request."""
        return False

    def token_call(self) -> Call | None:
        return None

    def take(self, answer: Answer, now: float) -> None:
        """Read the answer to `token_call`."""

    @property
    def fixed(self) -> bool:
        """Return whether `renew` can change nothing, because the caller passed the credential."""
        auth = self._auth
        return self._key is not None and not auth.headers and not isinstance(auth.user, Secret)

    def renew(self) -> bool:
        """Read the credential: at first, and again after the API rejected it. Return whether it has changed.

        Requests are signed meanwhile, so the headers are replaced once, when they are complete.
        """
        auth, before = self._auth, self._headers
        headers = self._environment_headers()
        if auth.kind != "none":
            secret = self._key if self._key is not None else self._get(auth.secret, "the credential")
            if secret is not None:
                headers[auth.header] = _checked(self._value(secret))
            elif not auth.optional:
                raise SetupError(f"There is no credential: {_where(auth.secret)}")
        self._headers = headers
        return headers != before

    def _value(self, secret: str) -> str:
        """The value of the header with this secret."""
        auth = self._auth
        if auth.kind == "basic":
            user = self._get(auth.user, "the user")
            pair = secret if user is None else f"{user}:{secret}"
            return "Basic " + base64.b64encode(pair.encode()).decode()
        prefix = auth.prefix if auth.prefix is not None else "Bearer " if auth.kind == "bearer" else ""
        return prefix + secret

    def _environment_headers(self) -> dict[str, str]:
        """The headers besides the credential whose values are not in the description."""
        found = {}
        for name, place in self._auth.headers.items():
            value = self._get(place, f"the header {name}")
            if value is None and not self._auth.optional:
                raise SetupError(f"The header {name} has no value: {_ways(place)}")
            if value is not None:
                found[name] = _checked(value)
        return found

    def _get(self, place: Secret | str | None, what: str) -> str | None:
        return (
            place
            if isinstance(place, str) or place is None
            else read_secret(place, self._environ, self._folder, what)
        )


class OAuth2(Credential):
    """A token that is requested with a client id and secret, or with a refresh token. It is kept only in memory."""

    __slots__ = ("_client", "_refresh", "_until")
    expires = True

    def __init__(self, auth: Auth, key: str | None, environ: Mapping[str, str], folder: Path) -> None:
        super().__init__(auth, key, environ, folder)
        self._client: tuple[str | None, str | None] = (None, None)
        self._refresh: str | None = None
        self._until = 0.0

    @property
    def fixed(self) -> bool:
        return False

    def renew(self) -> bool:
        auth = self._auth
        self._until = 0.0
        had = bool(self._headers)
        self._headers = self._environment_headers()
        secret = self._key if self._key is not None else self._get(auth.secret, "the client secret")
        self._client = (self._get(auth.client_id, "the client id"), secret)
        if auth.grant == "refresh_token":
            self._refresh = self._refresh or self._get(auth.refresh_token, "the refresh token")
            if self._refresh is None:
                raise SetupError(f"There is no refresh token: {_where(auth.refresh_token or Secret())}")
        elif None in self._client:
            raise SetupError(f"There is no client id or secret: {_where(auth.secret)}")
        self._know(secret, self._refresh)
        return had

    def _know(self, *secrets: str | None) -> None:
        """Remember secrets to hide, including those that were replaced."""
        known = dict.fromkeys((*self._raw, *(secret for secret in secrets if secret is not None)))
        self._raw = tuple(known)[-KNOWN:]

    @property
    def _identity(self) -> tuple[str, ...]:
        auth = self._auth
        first = (
            self._get(auth.refresh_token, "the refresh token") if auth.grant == "refresh_token" else None
        )
        return tuple(part or "" for part in (*self._client, first))

    def stale(self, now: float) -> bool:
        return now >= self._until

    def token_call(self) -> Call | None:
        from urllib.parse import quote_plus, urlencode

        auth = self._auth
        assert auth.token_url is not None
        form = {"grant_type": auth.grant, **auth.extra}
        headers = {"Accept": "application/json", "Content-Type": FORM_TYPE}
        if auth.scope:
            form["scope"] = auth.scope
        if self._refresh is not None:
            form["refresh_token"] = self._refresh
        id, secret = self._client
        if auth.client_in == "header" and id is not None:
            pair = f"{quote_plus(id)}:{quote_plus(secret or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        elif id is not None:
            form["client_id"] = id
            if secret is not None:
                form["client_secret"] = secret
        return _SecretCall("POST", auth.token_url, headers, urlencode(form).encode(), False)

    def take(self, answer: Answer, now: float) -> None:
        """Raise Denied if the token was refused, BadPoll if the answer has no token for another reason."""
        status = answer.status
        found: Any = answer.json()
        found = found if isinstance(found, dict) else {}
        token = text(found.get("access_token"))
        if status >= 400 or token is None:
            given = text(found.get("error_description")) or text(found.get("error"))
            detail = hide(given or "the response has no token", self.secrets())
            if status in (400, 401, 403):
                raise Denied(status, f"the token was refused: {detail[:300]}", final=True)
            raise BadPoll(status, f"no token: {detail[:300]}")
        life = number(found.get("expires_in")) or LIFETIME
        self._until = now + max(life - EARLY, life / 2)
        self._refresh = text(found.get("refresh_token")) or self._refresh
        self._know(self._refresh)
        prefix = self._auth.prefix if self._auth.prefix is not None else "Bearer "
        self._headers = {**self._headers, self._auth.header: _checked(prefix + token)}


class _SecretCall(Call, frozen=True):
    """A request whose body is a secret."""

    def __repr__(self) -> str:
        return f"<Call {self.method} {self.url}>"


def read_secret(
    place: Secret, environ: Mapping[str, str], folder: Path, what: str = "the credential"
) -> str | None:
    """Return a secret; None if it is not set; SetupError if its file or command fails."""
    for name in [place.env] if isinstance(place.env, str) else place.env:
        value = environ.get(name, "").strip()
        if value:
            return value
    if place.file is not None:
        path = folder / Path(place.file).expanduser()
        try:
            return path.read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SetupError(f"{what} cannot be read from {path}: {reason}") from None
    if place.command:
        return _run(place.command, what)
    return None


def _run(command: list[str], what: str) -> str | None:
    import subprocess

    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise SetupError(
            f"The command `{command[0]}` for {what} failed: {type(error).__name__}"
        ) from None
    if done.returncode:
        raise SetupError(
            f"The command `{command[0]}` for {what} failed with exit code {done.returncode}"
        )
    return done.stdout.strip() or None


def _origin(place: Secret, environ: Mapping[str, str]) -> str:
    """The variable, file or command that `read_secret` reads; empty if there is none."""
    for name in [place.env] if isinstance(place.env, str) else place.env:
        if environ.get(name, "").strip():
            return name
    if place.file is not None:
        return f"the file {place.file}"
    return f"the command `{place.command[0]}`" if place.command else ""


def _where(place: Secret) -> str:
    return ", or ".join(filter(None, [_ways(place), "give a key (--key, or `key` in Python)"]))


def _ways(place: Secret) -> str:
    names = [place.env] if isinstance(place.env, str) else place.env
    ways = [f"set {' or '.join(names)}"] if names else []
    ways += [f"write it to {place.file}"] if place.file else []
    return ", or ".join(ways)


def _checked(value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise SetupError(
            "The credential is not printable ASCII. Check that the file or variable is the right one."
        )
    return value
