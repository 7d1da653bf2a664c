"""The peer of uploads: uvicorn, and an application that only writes the body to a file."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


async def app(scope: Any, receive: Receive, send: Send) -> None:
    with Path(sys.argv[2], "body").open("wb") as file:
        more = True
        while more:
            message = await receive()
            file.write(message.get("body", b""))
            more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    uvicorn.run(
        app, host="127.0.0.1", port=int(sys.argv[1]), loop="uvloop", http="httptools", lifespan="off",
        access_log=False, log_level="critical",
    )  # fmt: skip
