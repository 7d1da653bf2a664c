"""The least that Starlette and psycopg can do for a status: one row by its id, and its JSON.

It has as many connections as bide has for reads.
"""

from __future__ import annotations

import asyncio
import sys

import psycopg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

CONNECTIONS = 8
# The fields of a status as one JSON text, so that there is no work left here.
STATUS = b"SELECT row_to_json(j)::text FROM jobs j WHERE id = %s"
idle: asyncio.Queue[psycopg.AsyncConnection[tuple[str]]] = asyncio.Queue()


async def status(request: Request) -> Response:
    connection = await idle.get()
    try:
        cursor = await connection.execute(STATUS, (request.path_params["job_id"],))
        row = await cursor.fetchone()
    finally:
        idle.put_nowait(connection)
    return Response(row[0] if row else "null", media_type="application/json")


async def main() -> None:
    for _ in range(CONNECTIONS):
        connection = await psycopg.AsyncConnection.connect(
            sys.argv[2], autocommit=True, prepare_threshold=0, options="-c search_path=bide"
        )
        idle.put_nowait(connection)
    config = uvicorn.Config(
        Starlette(routes=[Route("/jobs/{job_id}", status)]),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
