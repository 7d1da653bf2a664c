"""Requests to the paths of one bide service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import urlencode

from bide.client.apis import Answer, Call
from bide.client.apis.values import absolute, origin
from bide.client.http.addresses import split_credentials
from bide.client.http.sender import Content
from bide.client.http.transport import Download
from bide.core.wire.http import JSON_TYPE, encode

Params = Sequence[tuple[str, str]]


SUBMISSIONS = ("/jobs", "/jobs/batch")


class CallSender(Protocol):
    """An account; see `bide.client.account`."""

    async def send(self, call: Call, only: str = "", content: Content | None = None) -> Answer: ...

    async def open_download(self, call: Call) -> Download: ...


class ServiceRequests:
    """Makes calls of paths and sends them with the client's account. A refusal is raised as ServiceError."""

    def __init__(self, url: str, account: CallSender) -> None:
        self.url = url.rstrip("/")
        self._account = account

    @cached_property
    def _address(self) -> str:
        return split_credentials(self.url)[0]

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        hold: float = 0.0,
    ) -> Answer:
        """`hold` is the number of seconds that the service is asked to hold the request."""
        call = self.call(method, path, params=params, json=json, headers=headers, hold=hold)
        return (await self._account.send(call)).raise_for_status()

    async def send_content(
        self, method: str, path: str, content: Content, headers: Mapping[str, str], hold: float = 0.0
    ) -> Answer:
        """Send a body of any size, for as long as the connection takes bytes. An error of `content` is raised."""
        call = self.call(method, path, headers=headers, hold=hold)
        return (await self._account.send(call, content=content)).raise_for_status()

    async def open(self, call: Call) -> Download:
        return await self._account.open_download(call)

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        hold: float = 0.0,
    ) -> Call:
        """`path` may also be a whole URL, as `path_of` returns it. The credential goes only to the service."""
        url = self._address + path if path.startswith("/") else path
        if params:
            url += "?" + urlencode(params)
        body, kind = b"", {}
        if json is not None:
            body, kind = encode(json), {"Content-Type": JSON_TYPE}
        submission = method == "POST" and path in SUBMISSIONS
        authorized = self.same_origin(url)
        return Call(
            method,
            url,
            {**kind, **(headers or {})},
            body,
            authorized,
            hold=hold,
            submission=submission,
        )

    def path_of(self, location: str | None, url: str) -> str | None:
        """Return the target of a Location header in an answer from `url`; None if there is none.

        A URL of the service is returned as its path.
        """
        found = absolute(url, location)
        if found is not None and found.startswith(self._address + "/"):
            return found.removeprefix(self._address)
        return found

    def same_origin(self, url: str) -> bool:
        """Return whether this is a path of the service, or a URL with its scheme, host and port."""
        return url.startswith("/") or origin(url) == origin(self._address)
