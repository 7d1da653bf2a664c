"""A cable to a server that a test can cut, and mend."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit


class Cable:
    """Listens on a port of its own, the same one after it was mended. Cut at the end of `async with`."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._goal = (parts.hostname or "", parts.port or 80)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Cable:
        await self.mend()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cut()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Stop listening, and close all connections."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._goal)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        self._writers -= {writer, far_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()
