"""Follows the events of a bide service, so that many jobs are waited for with one connection instead of polls.

1. An event is a hint: the job that it names is polled, which reads the result. So a lost event delays a job, and loses none.
2. The feed counts as connected only after the first bytes, because a proxy may buffer a response. Silence ends it.
3. After each connection all jobs are polled once, because their events may have been missed.
4. After several failures in a row the jobs are polled for a while before the next connection. A stream that is cut soon is a
   failure, too, because behind a proxy that cuts streams each connection costs more polls than it saves.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlencode

import msgspec

from bide.client.apis import BadPoll, Call
from bide.client.http.sender import Sender
from bide.client.timing import Timing
from bide.core.errors import BideError, ServiceError
from bide.core.pacing.backoff import backoff
from bide.core.wire.events import SSE_TYPE, ServerSentEvent, SseDecoder

log = logging.getLogger("bide.client")

FIRST_BYTES = 3.0  # seconds
SILENCE = 20.0  # seconds; the service sends a comment every 15
LASTING = 30.0  # seconds after which a stream counts as a success
TRIES = 2  # failures in a row after which the client polls for a while
BASE, CAP = 1.0, 30.0  # backoff between two connections
PAUSE, LONGEST_PAUSE = 60.0, 3600.0  # backoff after TRIES failures
KINDS = 20  # more kinds are not named in the filter
OnJobEvent = Callable[[str, str, dict[str, Any]], None]  # job id, type, facts


class _FeedEvent(msgspec.Struct, rename="camel"):
    job_id: str | None = None
    type: str = ""
    job: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_FeedEvent).decode


class EventFeed:
    """One event stream for the jobs of one poller."""

    def __init__(
        self,
        url: str,
        sender: Sender,
        timing: Timing,
        rng: random.Random,
        *,
        on_event: OnJobEvent,
        on_connected: Callable[[], None],
        on_disconnected: Callable[[], None],
    ) -> None:
        self._url = url
        self._sender = sender
        self._timing = timing
        self._rng = rng
        self._on_event = on_event
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._kinds: set[str] = set()
        self._progress = False
        self._failures = 0  # in a row
        self._again_at = 0.0  # when to connect again
        self._task: asyncio.Task[None] | None = None
        self.connected = False
        self.unusable = False  # the service has no events

    def follow(self, kind: str, *, progress: bool) -> None:
        """Follow jobs of this kind. Opens the stream, or opens it again if its filter does not cover the kind."""
        if self.unusable:
            return
        covered = kind in self._kinds and (self._progress or not progress)
        self._kinds.add(kind)
        self._progress = self._progress or progress
        if self._task is None or not covered:
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._run(self._task))

    def stop(self) -> None:
        """Close the stream, because no job is waited for."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._kinds, self._progress, self.connected = None, set(), False, False

    async def close(self) -> None:
        task = self._task
        self.stop()
        if task is not None:
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            with suppress(asyncio.CancelledError):
                await before
        while not self.unusable:
            await self._timing.sleep(self._again_at - self._timing.now())
            started = self._timing.now()
            try:
                await self._follow()
            except ServiceError as error:
                # An older service has no events.
                self.unusable = error.status < 500 and error.status != 429
            except (BideError, BadPoll, TimeoutError, OSError) as error:
                log.debug("the event stream of %s was interrupted: %s", self._url, error)
            finally:
                was, self.connected = self.connected, False
                if was:
                    self._on_disconnected()
            self._failed(lasted=self._timing.now() - started if was else 0.0)

    def _failed(self, lasted: float) -> None:
        """Decide when to connect again after a stream that has lasted this long."""
        self._failures = 1 if lasted >= LASTING else self._failures + 1
        beyond = self._failures - TRIES
        if beyond < 0:
            pause = backoff(self._failures, BASE, CAP, self._rng)
        else:
            longest = min(LONGEST_PAUSE, PAUSE * 2.0 ** min(beyond, 60))
            pause = self._rng.uniform(longest / 2, longest)
        self._again_at = self._timing.now() + pause
        if self.unusable or beyond == 0:
            log.info("no event stream from %s; jobs are polled", self._url)

    async def _follow(self) -> None:
        types = "status,deleted,progress" if self._progress else "status,deleted"
        kinds = [] if "" in self._kinds or len(self._kinds) > KINDS else sorted(self._kinds)
        query = urlencode([("type", types), *(("kind", kind) for kind in kinds)])
        call = Call("GET", f"{self._url}?{query}", {"Accept": SSE_TYPE})
        async with asyncio.timeout(FIRST_BYTES):
            download = await self._sender.open(call)
        decoder, limit = SseDecoder(), FIRST_BYTES
        try:
            async with aclosing(download.chunks()) as chunks:
                while True:
                    async with asyncio.timeout(limit):
                        chunk = await anext(chunks, b"")
                    if not chunk:
                        return
                    if not self.connected:
                        self.connected, limit = True, SILENCE
                        self._on_connected()
                    for sent in decoder.feed(chunk):
                        self._handle(sent)
        finally:
            download.close()

    def _handle(self, sent: ServerSentEvent) -> None:
        if sent.type in ("snapshot", "reset", "end"):
            return
        try:
            event = _decode(sent.data)
        except msgspec.MsgspecError as error:
            log.debug("an event cannot be read: %s", error)
            return
        if event.job_id is not None:
            self._on_event(event.job_id, event.type, event.job)
