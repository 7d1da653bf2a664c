"""Reads event streams of a bide service, and resumes them after interruptions.

1. An interrupted stream is opened again after its last event, so every event of the log is yielded once, in order.
2. A stream ends only with `end`. A connection that closes otherwise was interrupted.
3. If no event and no comment arrives through a proxy, which may buffer the response, the events are read in pages with
   long polls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import urlencode

import msgspec

from bide.client.account import Account
from bide.client.apis import Call
from bide.client.apis.bide import BideApi
from bide.core.errors import ServiceUnreachable, SetupError
from bide.core.wire.events import SSE_TYPE, SseDecoder

log = logging.getLogger("bide.client")

HOLD = 30.0  # seconds that the service holds the request for a page
FIRST_BYTES = 5.0  # seconds; the service sends the begin of a stream at once
SILENT = 2  # streams in a row without a byte, after which pages are read
LONGEST_RETRY = 60.0  # seconds
NO_EVENT = "0-0"  # a cursor of no epoch: the response has the current state


class JobEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An event of a bide service.

    `type` is `status`, `step`, `log`, `output`, `deleted`, `queue` or `progress`. `snapshot` has the state at the begin of
    a stream, and `reset` the state after a gap that cannot be filled. `job` has the facts about the job; of a `snapshot`
    and a `reset` it is the status resource, or the counts of all queues. `id` is the cursor for `after`; `progress` has
    none.
    """

    type: str
    id: str | None = None
    job_id: str | None = None
    at: str | None = None
    job: dict[str, Any] = {}


class JobOutput(msgspec.Struct, frozen=True):
    """A chunk of a job's output stream. A new generation begins when another attempt runs."""

    data: Any
    generation: int
    index: int
    id: str


_read_event = msgspec.json.Decoder(JobEvent).decode
_read_state = msgspec.json.Decoder(dict[str, Any]).decode


class EventReader:
    """Reads the events of one job (`job_id`), its output, or the events of all jobs that `params` select. `cursor` is the id
    of the last event that was read.
    """

    def __init__(
        self,
        account: Account,
        job_id: str | None,
        params: Sequence[tuple[str, str]] = (),
        after: str | None = None,
        *,
        output: bool = False,
    ) -> None:
        api = account.api
        if not isinstance(api, BideApi):
            raise SetupError(f"{api.name} is not a bide service: it has no event streams")
        part = "stream" if output else "events"
        self._url = f"{api.url}/events" if job_id is None else f"{api.job_url(job_id)}/{part}"
        self._account = account
        self._output = output
        self._params = list(params)
        self.cursor = after
        self._ended = False
        self._silent = 0  # streams in a row without a byte
        self._pause: float | None = None  # seconds before the next connection, as the service says

    async def events(self, follow: bool = True) -> AsyncGenerator[JobEvent]:
        """Yield events until the stream ends; without `follow`, those that the service has now."""
        if not follow:
            async for event in self._pages(wait=False):
                yield event
            return
        while not self._ended:
            source = self._stream() if self._silent < SILENT else self._pages()
            async with aclosing(source):
                async for event in source:
                    yield event
            if not self._ended:
                await self._account.pause(self._pause)

    async def _stream(self) -> AsyncGenerator[JobEvent]:
        headers = {"Accept": SSE_TYPE}
        if self.cursor is not None:
            headers["Last-Event-ID"] = self.cursor
        download = await self._account.open_with_retries(self._call(self._params, headers))
        if download.status == 204:
            self._ended = True
            return
        decoder, received = SseDecoder(), False
        try:
            async with aclosing(download.chunks()) as chunks:
                while True:
                    async with asyncio.timeout(None if received else FIRST_BYTES):
                        chunk = await anext(chunks, b"")
                    if not chunk:
                        break
                    received = True
                    for sent in decoder.feed(chunk):
                        if sent.retry is not None:
                            self._pause = min(sent.retry / 1000, LONGEST_RETRY)
                        if sent.type == "end":
                            self._ended = True
                            return
                        self.cursor = sent.id or self.cursor
                        yield _event(sent.type, sent.data, sent.id)
            log.debug("the event stream was interrupted; it continues after %s", self.cursor)
        except (ServiceUnreachable, TimeoutError) as error:
            log.debug("the event stream was interrupted: %s", error)
        finally:
            download.close()
            self._silent = 0 if received else self._silent + 1
            if self._silent == SILENT:
                log.info(
                    "no event stream reaches this client, perhaps because of a proxy; using long polls"
                )

    async def _pages(self, wait: bool = True) -> AsyncGenerator[JobEvent]:
        hold, more = 0.0, True
        while not self._ended and (wait or more):
            # A stream without a cursor begins with the current state, and only the output from its first chunk.
            begins = wait and self.cursor is None and not self._output
            after = NO_EVENT if begins else self.cursor
            params = [*self._params, ("after", after)] if after else self._params
            headers = {"Prefer": f"wait={hold:.0f}"} if hold else {}
            answer = await self._account.send_with_retries(self._call(params, headers, hold))
            page = answer.raise_for_status().read(dict[str, Any])
            found = msgspec.convert(page["events"], list[JobEvent])
            for event in found:
                yield msgspec.structs.replace(event, type="snapshot") if begins else event
            self.cursor, self._ended = page["next"], page["ended"]
            more = page.get("more", False)
            hold = HOLD if wait else 0.0

    def _call(
        self, params: Sequence[tuple[str, str]], headers: dict[str, str], hold: float = 0.0
    ) -> Call:
        url = f"{self._url}?{urlencode(params)}" if params else self._url
        return Call("GET", url, headers, hold=hold)


async def read_output(account: Account, job_id: str, after: str | None) -> AsyncGenerator[JobOutput]:
    """Yield the chunks of a job's output stream until the job has ended. After a `reset`, the cursor is void: the output is
    read from its first chunk again, without those that were yielded.
    """
    last = (0, -1)  # generation and index
    complete = False
    while not complete:
        complete = True
        events = EventReader(account, job_id, after=after, output=True).events()
        async with aclosing(events):
            async for event in events:
                if event.type == "reset":
                    after, complete = None, False
                    break
                if event.type != "output" or event.id is None:
                    continue
                facts = event.job
                place = (facts["generation"], facts["index"])
                if place > last:
                    last = place
                    yield JobOutput(facts.get("output"), *place, event.id)


def _event(type_: str, data: str, id_: str | None) -> JobEvent:
    if type_ in ("snapshot", "reset"):
        state = _read_state(data)
        return JobEvent(type_, id_, state.get("jobId"), state.get("updatedAt"), state)
    return _read_event(data)
