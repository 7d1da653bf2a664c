"""After any sequence of tus requests and failures, an upload resumes and has the bytes that were sent."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bide.server.store import ClaimRequest
from tests.integration.http.service import Reply, Service
from tests.integration.http.test_http_tus import OFFSET, TUS, Sender, metadata, patch

SIZE = 3000
LENGTHS = st.integers(0, SIZE)


class Resuming(RuleBasedStateMachine):
    """One upload. `offset` is the offset that was last acknowledged; the service may have more, never less."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self._open()

    def _open(self) -> None:
        self.service = Service(Path(self._folder.name))
        self._opened = self.service.opened()
        self._runner.run(self._opened.__aenter__())

    def _close(self) -> None:
        self._runner.run(self._opened.__aexit__(None, None, None))

    def teardown(self) -> None:
        try:
            self._finish()
        finally:
            self._close()
            self._runner.close()
            self._folder.cleanup()

    @initialize(seed=st.integers(0, 255), deferred=st.booleans())
    def begin(self, seed: int, deferred: bool) -> None:
        self.content = bytes((seed + i * i) % 256 for i in range(SIZE))
        self.deferred = deferred
        length = {"upload-defer-length": "1"} if deferred else {"upload-length": str(SIZE)}
        told = {"upload-metadata": metadata(kind="thumbnail", filename="a")}
        reply = self._call("POST", "/files", headers={**TUS, **length, **told})
        assert reply.status == 201
        self.place, self.offset, self.jobs = reply.headers["location"], 0, set[str]()

    def _call(self, method: str, place: str, **more: Any) -> Reply:
        return self._runner.run(self.service.call(method, place, **more))

    def _last(self, end: int) -> dict[str, str]:
        return {"upload-length": str(SIZE)} if self.deferred and end == SIZE else {}

    def _see(self, reply: Reply) -> None:
        self.offset = int(reply.headers["upload-offset"])
        if "job-location" in reply.headers:
            self.jobs.add(reply.headers["job-location"])

    @rule()
    def ask(self) -> None:
        reply = self._call("HEAD", self.place, headers=TUS)
        assert reply.status == 200
        assert int(reply.headers["upload-offset"]) >= self.offset
        self._see(reply)

    @precondition(lambda self: self.offset < SIZE)
    @rule(length=LENGTHS, verified=st.booleans())
    def go_on(self, length: int, verified: bool) -> None:
        self.ask()
        if self.offset == SIZE:
            return
        data = self.content[self.offset : self.offset + length]
        more = self._last(self.offset + len(data))
        if verified:
            digest = base64.b64encode(hashlib.sha1(data).digest()).decode()
            more["upload-checksum"] = f"sha1 {digest}"
        end = self.offset + len(data)
        reply = self._runner.run(patch(self.service, self.place, self.offset, data, **more))
        assert reply.status == 204, reply.body
        self._see(reply)
        assert self.offset == end

    @rule(length=LENGTHS, pieces=st.integers(1, 4), verified=st.booleans())
    def be_cut(self, length: int, pieces: int, verified: bool) -> None:
        self.ask()
        before, data = self.offset, self.content[self.offset : self.offset + length]
        more = {"upload-checksum": "crc32 AAAAAA=="} if verified else {}

        async def send() -> None:
            sender = Sender(self.service, self.place, before, **more)
            step = max(1, len(data) // pieces)
            for first in range(0, len(data), step):
                sender.put(data[first : first + step])
            sender.leave()
            await sender.ended()

        if before < SIZE:
            self._runner.run(send())
            self.ask()
            assert self.offset == before if verified else before <= self.offset <= before + len(data)

    @rule(length=st.integers(1, SIZE))
    def send_damaged(self, length: int) -> None:
        self.ask()
        if self.offset < SIZE:
            data = self.content[self.offset : self.offset + length]
            told = {"upload-checksum": "crc32 AAAAAA=="}
            reply = self._runner.run(patch(self.service, self.place, self.offset, data, **told))
            assert reply.status == 460

    @rule(distance=st.integers(-50, 50).filter(bool))
    def send_elsewhere(self, distance: int) -> None:
        self.ask()
        offset = max(0, self.offset + distance)
        if offset != self.offset:
            reply = self._runner.run(patch(self.service, self.place, offset, b"x"))
            assert reply.status in (409, 422)

    @rule(first=LENGTHS, second=LENGTHS)
    def two_at_once(self, first: int, second: int) -> None:
        self.ask()
        before = self.offset

        async def send() -> set[int]:
            senders = [Sender(self.service, self.place, before) for _ in range(2)]
            for sender, length in zip(senders, (first, second), strict=True):
                sender.put(self.content[before : before + length])
                await sender.read()
                sender.put(b"", last=True)
            return {await sender.ended() for sender in senders}

        if before < SIZE and not self.deferred:
            assert self._runner.run(send()) <= {204, 409}
            self.ask()

    @rule()
    def restart(self) -> None:
        self._close()
        self._open()

    @rule()
    def tend(self) -> None:
        self.service.clock.advance(11)
        self._runner.run(self.service.expiry.tick())

    @invariant()
    def never_more_than_one_job(self) -> None:
        assert len(getattr(self, "jobs", ())) <= 1

    def _finish(self) -> None:
        """Whatever happened, it comes to a good end, and to one job."""
        if not hasattr(self, "place"):
            return
        self.ask()
        if self.offset < SIZE or self.deferred:
            lines = {**TUS, "content-type": OFFSET, "upload-offset": str(self.offset)}
            data = self.content[self.offset :]
            reply = self._call(
                "PATCH",
                self.place,
                body=data,
                headers={**lines, **self._last(SIZE), "content-length": str(len(data))},
            )
            assert reply.status == 204, reply.body
            self._see(reply)
        assert self._call("GET", self.place).body == self.content
        claims = self._runner.run(
            _claim(self.service),
        )
        assert [f"/jobs/{claim.job.id}" for claim in claims] == list(self.jobs)
        assert claims[0].files[0].file.sha256 == hashlib.sha256(self.content).hexdigest()


async def _claim(service: Service) -> Any:
    return await service.store.claim("w", [ClaimRequest("default", ("thumbnail",), 9)], 9, 30.0)


TestResuming = Resuming.TestCase
TestResuming.settings = settings(
    max_examples=25, stateful_step_count=15, suppress_health_check=list(HealthCheck), deadline=None
)
