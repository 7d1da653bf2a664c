"""A backend with users of its own, in two companies. Each company is a tenant of the bide service.

The backend has one API key per tenant. A page of a signed-in user gets a token from it, for the jobs of this user and for
one minute, and then talks to the service directly. Keys stay in the backend.

Start it with `uvicorn backend:site --port 8000`. BIDE_URL is the URL of the service. The files acme.key and globex.key have
the keys of the tenants, with the scopes read, submit and control.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import urllib.request
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, Cookie, FastAPI, HTTPException, Response
from fastapi.responses import FileResponse

SERVICE = os.environ.get("BIDE_URL", "http://127.0.0.1:8642")
KEYS = {tenant: Path(f"{tenant}.key").read_text().strip() for tenant in ("acme", "globex")}
TTL = float(os.environ.get("TOKEN_TTL", "60"))  # seconds for which a token is valid
# Of a demonstration. Your application has its users in a database, with hashed passwords.
USERS = {"ann": ("acme", "ann-secret"), "bob": ("globex", "bob-secret")}
FOLDER = Path(__file__).parent

site = FastAPI()
sessions: dict[str, str] = {}  # users by the text of the cookie


@site.get("/")
def page() -> FileResponse:
    return FileResponse(FOLDER / "page.html")


@site.get("/page.js")
def script() -> FileResponse:
    return FileResponse(FOLDER / "page.js", media_type="text/javascript")


@site.post("/login")
def login(
    user: Annotated[str, Body()], password: Annotated[str, Body()], response: Response
) -> dict[str, str]:
    tenant, expected = USERS.get(user, ("", ""))
    if not tenant or not hmac.compare_digest(password.encode(), expected.encode()):
        raise HTTPException(401, "The name or the password is wrong.")
    text = secrets.token_urlsafe(32)
    sessions[text] = user
    response.set_cookie("session", text, httponly=True, samesite="strict")
    return {"user": user, "tenant": tenant}


@site.post("/token")
def token(session: Annotated[str, Cookie()] = "") -> dict[str, Any]:
    """A token for the jobs of the user who is signed in. The page asks again before it expires."""
    user = sessions.get(session)
    if user is None:
        raise HTTPException(401, "Sign in first.")
    tenant, _ = USERS[user]
    wanted = {"labels": {"user": user}, "scopes": ["read", "submit", "control"], "ttl": TTL}
    headers = {"Authorization": f"Bearer {KEYS[tenant]}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{SERVICE}/tokens", json.dumps(wanted).encode(), headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        made: dict[str, Any] = json.load(answer)
    return {**made, "service": SERVICE, "ttl": TTL}
