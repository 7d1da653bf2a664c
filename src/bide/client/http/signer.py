"""Puts the credential onto requests, and sees to it that there is one: a token is fetched before it is needed.

1. However many requests need a token, one of them fetches it; when that fails, those that waited for it fail with it.
2. A token that cannot be had for now is told as ServiceUnreachable, one that is refused as Denied with status 401:
   whatever its endpoint's own status, it is the credential that is wrong, and so for all jobs. The same goes for a
   hook that cannot sign.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping

from bide.client.apis import Answer, Api, BadPoll, Call, Credential, Denied
from bide.client.http.transport import ANSWER_TIMEOUT, SHORTEST_SECRET, Transport
from bide.core.errors import BideError, ServiceUnreachable, SetupError, UnusableService

_SECRET = re.compile("auth|cookie|key|secret|token", re.IGNORECASE)


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
        self._tries = 0  # to fetch a token that have ended
        self._failure: BideError | None = None  # of the last of them
        self.turn = 0  # grows whenever the credential is another one
        self._merged: dict[int, tuple[Mapping[str, str], dict[str, str]]] = {}

    @property
    def stale(self) -> bool:
        return self._credential is not None and self._credential.stale(self._wall())

    async def ready(self) -> None:
        """Fetches a token when there is none, or it has nearly ended."""
        tries = self._tries
        async with self._lock:
            if not self.stale:
                return
            if self._failure is not None and tries != self._tries:
                raise self._failure
            self._failure = None
            try:
                await self._fetch()
            except Denied as error:
                self._failure = Denied(401, error.detail, final=True)
            except UnusableService as error:
                self._failure = error
            except (BadPoll, ServiceUnreachable) as error:
                self._failure = ServiceUnreachable(f"no token for {self._api.name}: {error}")
            finally:
                self._tries += 1
            if self._failure is not None:
                raise self._failure

    async def _fetch(self) -> None:
        credential = self._credential
        call = credential.token_call() if credential is not None else None
        if credential is None or call is None:
            return
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                answer = await self._transport.exchange(call.method, call.url, call.headers, call.body)
        except TimeoutError:
            raise ServiceUnreachable("it took too long") from None
        credential.take(answer, self._wall())
        self._renewed()

    def proof(self) -> tuple[dict[str, str], dict[str, str]]:
        """All that says who asks: the headers of the credential, and those of the caller."""
        return self._credential.headers() if self._credential is not None else {}, self._added

    def headers(self, call: Call) -> Mapping[str, str]:
        """Of a call as it is sent."""
        if not call.authorized:
            return call.headers
        if self._api.signs:
            call = self._signed(call)
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

    def _signed(self, call: Call) -> Call:
        """A hook without its credential, or without its library, cannot go on: for all jobs alike, and at once."""
        try:
            return self._api.signed(call, self._credential, self._wall())
        except SetupError as error:
            raise Denied(401, str(error), final=True) from None

    async def denied(self, turn: int) -> bool:
        """The API did not take the credential of that turn: whether there is another one now."""
        if self._credential is None:
            return False
        async with self._lock:
            if turn == self.turn and await asyncio.to_thread(self._credential.renew):
                self._renewed()
        return turn != self.turn

    def clean(self, answer: Answer) -> Answer:
        """A refusal may repeat the key that it refuses; what is said of it goes into errors and logs."""
        if answer.status >= 400:
            for secret in self._secrets():
                if secret in answer.body:
                    answer.body = answer.body.replace(secret, b"[hidden]")
        return answer

    def _secrets(self) -> Iterator[bytes]:
        added = [value for name, value in self._added.items() if _SECRET.search(name)]
        found = [value.rpartition(" ")[2] for value in added]  # without `Bearer` and its like
        if self._credential is not None:
            found += self._credential.secrets()
        yield from (secret.encode() for secret in found if len(secret) >= SHORTEST_SECRET)

    def _renewed(self) -> None:
        self.turn += 1
        self._merged.clear()
