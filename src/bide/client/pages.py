"""A result that comes in pages, as one: values joined, or bytes that can be taken up again where a stream broke.

A description says how pages follow each other (`result.next`). What one page has is not told twice, and none is left
out: a page that cannot be had is an error of the whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from bide.client.apis import Answer, Api, Call
from bide.core.errors import BideError

MOST = 100_000  # pages of one result: an API that leads in a circle is not followed for ever
Headers = dict[str, str]
Stream = Callable[
    [Call, int, Headers], AsyncIterator[bytes]
]  # from an offset; the headers are put into the last
Send = Callable[[Call], Awaitable[Answer]]


def joined(values: list[Any]) -> Any:
    """Lists become one list; pages of another form stay what they are, in a list."""
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return values


class Pages:
    """The bytes of all pages, one after the other, for whoever asks for them from an offset on."""

    def __init__(self, api: Api, first: Call, stream: Stream, send: Send) -> None:
        rule = api.form.result.next if api.form.result is not None else None
        assert rule is not None
        self._api = api
        self._stream = stream
        self._send = send
        self._skip = rule.skip
        found = api.calls.next_page()
        assert found is not None
        self._next = found
        self._page = first
        self._start = 0  # the offset in the whole at which the page begins, or would without the lines that it skips
        self._number = 0

    async def read(self, offset: int) -> AsyncIterator[bytes]:
        """Called again with where the last reading broke off."""
        while True:
            if self._next.reads_body:
                answer = await self._send(self._page)
                yield answer.body + b"\n"
                offset += len(answer.body) + 1
            else:
                heard: Headers = {}
                async for chunk in self._rest(offset, heard):
                    yield chunk
                    offset += len(chunk)
                answer = Answer(200, heard, b"")
            following = self._next.following(self._page.url, answer)
            if following is None:
                return
            self._number += 1
            if self._number >= MOST:
                raise BideError(f"the result has more than {MOST} pages: it leads in a circle")
            self._page, self._start = self._api.calls.fetch(following), offset

    async def _rest(self, offset: int, heard: Headers) -> AsyncIterator[bytes]:
        """Of the present page; without its first lines, when it is a further one and nothing of it was read."""
        lines = self._skip if self._number and offset == self._start else 0
        held = b""
        async for chunk in self._stream(self._page, offset - self._start, heard):
            if not lines:
                yield chunk
                continue
            held += chunk
            while lines and b"\n" in held:
                skipped, _, held = held.partition(b"\n")
                self._start -= len(skipped) + 1
                lines -= 1
            if not lines and held:
                yield held
                held = b""
