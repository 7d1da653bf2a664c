"""Bodies that are read as they come, of whatever size, from the API or from wherever it points.

1. What goes to the API draws on its budget, and what it answers is news for it; what is elsewhere is not the API's to count.
2. The credential goes along only to whom it is meant for, over any redirect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from bide.client.apis import Answer, Api, Call, Throttled
from bide.client.apis.values import header
from bide.client.http.signer import Signer
from bide.client.http.transport import REDIRECTS, Body, Transport
from bide.core.errors import BideError


class Turns(Protocol):
    """Who hands out the budget: the poller."""

    async def turn(self) -> None: ...

    def heard(self, answer: Answer, throttled: bool) -> None: ...


class Opener:
    """Of one API and one credential."""

    def __init__(self, api: Api, transport: Transport, signer: Signer) -> None:
        self._api = api
        self._transport = transport
        self._signer = signer

    @asynccontextmanager
    async def opened(
        self, turns: Turns, call: Call, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Body]:
        """A success whose body is still to come; a refusal is raised as Throttled or ServiceError."""
        denied = False
        for _ in range(REDIRECTS + 2):
            if call.authorized:
                await turns.turn()
            if self._signer.stale:
                await self._signer.ready()
            turn = self._signer.turn
            sent = {**self._signer.headers(call), **(headers or {})}
            async with self._transport.opened(call.url, sent) as body:
                answer = await self._refusal(turns, call, body)
                if answer is None:
                    yield body
                    return
            following = None
            if 301 <= answer.status <= 308 and answer.status != 304:
                following = self._api.calls.redirected(call, header(answer.headers, "Location"))
            elif answer.status == 401 and call.authorized and not denied:
                denied = True
                following = call if await self._signer.denied(turn) else None
            if following is None:
                raise answer.problem()
            call = following
        raise BideError(f"{call.url.partition('?')[0]} cannot be found: redirects lead nowhere")

    async def _refusal(self, turns: Turns, call: Call, body: Body) -> Answer | None:
        """None when its body is what was asked for."""
        good = 200 <= body.status < 300
        content = b"" if good else await body.whole()
        answer = self._signer.clean(Answer(body.status, body.headers, content, call.url))
        throttled = not good and self._api.reader.throttled(answer)
        if call.authorized:
            turns.heard(answer, throttled)
        if throttled:
            raise Throttled(answer.status, "too many requests")
        return None if good else answer
