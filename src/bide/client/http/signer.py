"""Adds the credential to requests, fetches its token in time, and hides it in refusals.

1. If several requests need a token, one of them fetches it. If that fails, the others fail with it.
2. A token that cannot be fetched for now raises ServiceUnreachable. A token that is refused raises Denied with status
   401, whatever the status of its endpoint, because the credential is wrong for all jobs. The same is true for a hook
   that cannot sign.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping

import msgspec

from bide.client.apis import Answer, Api, BadPoll, Call, Credential, Denied, Seen
from bide.client.apis.scrubber import hide, hide_in_body
from bide.client.http.transport import Transport, time_limit
from bide.core.errors import BideError, ServiceUnreachable, SetupError, UnusableService

_SECRET = re.compile("auth|cookie|key|secret|token", re.IGNORECASE)


class Signer:
    """Signs for one API with one credential. `wall` returns epoch seconds."""

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
        self._expires = credential is not None and credential.expires
        self._transport = transport
        self._wall = wall
        self._added = dict(headers or {})  # the caller's own headers go where the credential goes
        self._lock = asyncio.Lock()
        self._tries = 0  # finished tries to fetch a token
        self._failure: BideError | None = None  # of the last try
        self.generation = 0  # increases with each new credential
        self._merged: dict[int, tuple[Mapping[str, str], dict[str, str]]] = {}

    @property
    def stale(self) -> bool:
        return self._expires and self._credential is not None and self._credential.stale(self._wall())

    async def ready(self) -> None:
        """Fetch a token if there is none, or it expires soon."""
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
                self._failure = Denied(401, f"{error.detail}. {self.credential_source()}", final=True)
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
        answer = await self._transport.exchange(
            call.method, call.url, call.headers, call.body, timeout=time_limit(0.0)
        )
        credential.take(answer, self._wall())
        self._renewed()

    def proof(self) -> tuple[dict[str, str], dict[str, str]]:
        """The headers of the credential, and the caller's own."""
        return self._credential.headers if self._credential is not None else {}, self._added

    def headers(self, call: Call) -> Mapping[str, str]:
        """The headers of a call as it is sent."""
        if not call.authorized:
            return call.headers
        if self._api.signs:
            call = self._signed(call)
            return {**call.headers, **self._added} if self._added else call.headers
        # Most calls share one dict of headers, which is merged once.
        key = id(call.headers)
        known = self._merged.get(key)
        if known is not None and known[0] is call.headers:
            return known[1]
        added = self._credential.headers if self._credential is not None else {}
        merged = {**call.headers, **added, **self._added}
        if len(self._merged) < 8:
            self._merged[key] = (call.headers, merged)
        return merged

    def _signed(self, call: Call) -> Call:
        """A hook without its credential or its library fails for all jobs at once."""
        try:
            return self._api.signed(call, self._credential, self._wall())
        except SetupError as error:
            raise Denied(401, str(error), final=True) from None

    async def denied(self, generation: int) -> bool:
        """The API denied the credential of that generation. Return whether there is another one now."""
        if self._credential is None or self._credential.fixed:
            return generation != self.generation
        async with self._lock:
            if generation == self.generation and await asyncio.to_thread(self._credential.renew):
                self._renewed()
        return generation != self.generation

    def clean(self, answer: Answer) -> Answer:
        """Hide secrets in a refusal: it may repeat the key, and its text goes into errors and logs."""
        denied = self._api.reader.denied(answer)
        if answer.status >= 400 or denied:
            if answer.status in (401, 403) or denied:
                answer.credential = self.credential_source()
            answer.body = hide_in_body(answer.body, self._secrets())
        return answer

    def hide_in_error(self, seen: Seen) -> Seen:
        """Hide secrets in the error of a failed job: it may quote the answer."""
        error = seen.error
        if error is None:
            return seen
        message = self.hide(error.message)
        if message == error.message:
            return seen
        return msgspec.structs.replace(seen, error=msgspec.structs.replace(error, message=message))

    def hide(self, text: str) -> str:
        """Hide secrets in a text that quotes an answer."""
        return hide(text, self._secrets())

    def credential_source(self) -> str:
        """A sentence that names the source of the credential, for the error of a refusal."""
        if self._credential is not None and (found := self._credential.source()):
            return found
        sent = next((v for name, v in self._added.items() if name.lower() == "authorization"), None)
        if sent is None:
            return "No credential was sent: set BIDE_KEY." if self._api.is_bide else ""
        if self._api.is_bide and sent.rpartition(" ")[2] == os.environ.get("BIDE_KEY"):
            return "The credential is from BIDE_KEY."
        return "The credential is the one that you passed."

    def _secrets(self) -> list[str]:
        added = [value for name, value in self._added.items() if _SECRET.search(name)]
        found = [value.rpartition(" ")[2] for value in added]  # without `Bearer` or `Basic`
        if self._credential is not None:
            found += self._credential.secrets()
        return found

    def _renewed(self) -> None:
        self.generation += 1
        self._merged.clear()
