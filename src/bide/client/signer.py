"""Puts the credential onto requests, and sees to it that there is one: a token is fetched before it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from bide.client.apis import Api, Call, Credential
from bide.client.transport import Transport


class Signer:
    """Of one API and one credential. `wall` tells epoch seconds."""

    def __init__(
        self,
        api: Api,
        credential: Credential | None,
        transport: Transport,
        wall: Callable[[], float],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._api = api
        self._credential = credential
        self._transport = transport
        self._wall = wall
        self._added = dict(headers or {})  # of the caller's own; they go where the credential goes
        self._lock = asyncio.Lock()
        self.turn = 0  # grows whenever the credential is another one
        self._merged: dict[int, tuple[Mapping[str, str], dict[str, str]]] = {}

    @property
    def stale(self) -> bool:
        return self._credential is not None and self._credential.stale(self._wall())

    async def ready(self) -> None:
        """Fetches a token when there is none, or it has nearly ended; BadPoll when it is refused."""
        credential = self._credential
        async with self._lock:
            call = credential.token_call() if credential is not None and self.stale else None
            if credential is not None and call is not None:
                answer = await self._transport.exchange(call.method, call.url, call.headers, call.body)
                credential.take(answer.status, answer.headers, answer.body, self._wall())
                self._renewed()

    def proof(self) -> dict[str, str]:
        """All that says who asks."""
        added = self._credential.headers() if self._credential is not None else {}
        return {**added, **self._added}

    def headers(self, call: Call) -> Mapping[str, str]:
        """Of a call as it is sent."""
        if not call.authorized:
            return call.headers
        if self._api.signs:
            call = self._api.signed(call, self._credential, self._wall())
            return {**call.headers, **self._added} if self._added else call.headers
        # Most calls share the headers of their description, so that these are merged once.
        key = id(call.headers)
        known = self._merged.get(key)
        if known is not None and known[0] is call.headers:
            return known[1]
        added = self._credential.headers() if self._credential is not None else {}
        merged = {**call.headers, **added, **self._added}
        if len(self._merged) < 8:
            self._merged[key] = (call.headers, merged)
        return merged

    async def denied(self, turn: int) -> bool:
        """The API did not take the credential of that turn: whether there is another one now."""
        if self._credential is None:
            return False
        async with self._lock:
            if turn == self.turn and await asyncio.to_thread(self._credential.renew):
                self._renewed()
        return turn != self.turn

    def _renewed(self) -> None:
        self.turn += 1
        self._merged.clear()
