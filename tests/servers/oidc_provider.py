"""A small OpenID Connect provider on a socket: discovery, authorize, token and jwks, with PKCE. It checks what a provider
has to check, and misbehaves where a test asks for it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey

CLIENT, SECRET = "dashboard", "s3cret & more"
Answer = tuple[int, dict[str, str], str]


@dataclass
class Grant:
    """What a code stands for."""

    redirect_uri: str
    challenge: str
    nonce: str


@dataclass
class OidcProvider:
    """Users sign in by a click. `claims` are those of the user."""

    claims: dict[str, Any] = field(
        default_factory=lambda: {"sub": "ann", "tenant": "acme", "scope": "openid read submit"}
    )
    redirect_uris: list[str] = field(default_factory=list)
    # What a test changes: claims of the next id token, the whole token, the discovery document, the answer of `authorize`.
    changes: dict[str, Any] = field(default_factory=dict)
    make_token: Callable[[dict[str, Any]], str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, str] | None = None
    requests: list[str] = field(default_factory=list)  # paths
    clock: Callable[[], float] = time.time
    key: ECKey = field(default_factory=lambda: ECKey.generate_key("P-256", {"kid": "1", "use": "sig"}))

    def __post_init__(self) -> None:
        self._codes: dict[str, Grant] = {}
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, after `stop` on the same port."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(_values(body.decode()))

            def _answer(self, form: dict[str, str]) -> None:
                status, headers, body = provider._respond(self.path, form, dict(self.headers))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    # --- the protocol

    def _respond(self, target: str, form: dict[str, str], headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(target)
        self.requests.append(parts.path)
        if parts.path == "/.well-known/openid-configuration":
            return _json(200, self._metadata())
        if parts.path == "/jwks":
            return _json(200, {"keys": [self.key.as_dict(private=False)]})
        if parts.path == "/authorize":
            return self._authorize(_values(parts.query), target)
        if parts.path == "/token":
            return self._token(form, headers)
        return 404, {}, ""

    def _metadata(self) -> dict[str, Any]:
        paths = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/jwks"}
        endpoints = {name: self.issuer + path for name, path in paths.items()}
        return {"issuer": self.issuer, **endpoints, **self.metadata}

    def _authorize(self, query: dict[str, str], target: str) -> Answer:
        wrong = [
            name
            for name, expected in (
                ("response_type", "code"),
                ("client_id", CLIENT),
                ("code_challenge_method", "S256"),
            )
            if query.get(name) != expected
        ]
        if wrong or query.get("redirect_uri") not in self.redirect_uris:
            return 400, {}, f"wrong: {wrong} {query}"
        if "openid" not in query["scope"].split() or not query["code_challenge"] or not query["nonce"]:
            return 400, {}, f"missing: {query}"
        if "confirmed" not in query:  # the page on which the user signs in
            page = f'<h1>Provider</h1><a href="{target.replace("&", "&amp;")}&amp;confirmed=1">Continue as Ann</a>'
            return 200, {"Content-Type": "text/html"}, page
        answer = self.answer
        if answer is None:
            code = secrets.token_urlsafe()
            self._codes[code] = Grant(query["redirect_uri"], query["code_challenge"], query["nonce"])
            answer = {"code": code, "iss": self.issuer, "session_state": "x"}
        back = urlencode({**answer, "state": query["state"]})
        return 302, {"Location": f"{query['redirect_uri']}?{back}"}, ""

    def _token(self, form: dict[str, str], headers: Mapping[str, str]) -> Answer:
        kind, _, pair = headers.get("Authorization", "").partition(" ")
        name, _, secret = base64.b64decode(pair).decode().partition(":")
        if kind != "Basic" or (unquote_plus(name), unquote_plus(secret)) != (CLIENT, SECRET):
            return _json(401, {"error": "invalid_client"})
        grant = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            grant is None
            or form["grant_type"] != "authorization_code"
            or form["redirect_uri"] != grant.redirect_uri
            or challenge != grant.challenge
        ):
            wrong = {"error": "invalid_grant", "error_description": "the code is unknown or used"}
            return _json(400, wrong)
        now = int(self.clock())
        times = {"iat": now, "exp": now + 60, "nonce": grant.nonce}
        claims = {"iss": self.issuer, "aud": CLIENT, **times, **self.claims, **self.changes}
        claims = {name: value for name, value in claims.items() if value is not None}
        token = self.make_token or self.sign
        return _json(200, {"access_token": "opaque", "token_type": "Bearer", "id_token": token(claims)})

    def sign(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "ES256", "kid": "1"}, claims, self.key)


def _values(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


def _json(status: int, value: Any) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(value)
