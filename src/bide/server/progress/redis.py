"""A progress store in Redis: one key per attempt, which expires unless it is put again.

Job ids are globally unique, so services that share a Redis do not collide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from bide.core.errors import SetupError
from bide.server.progress import LIFE, AttemptKey, LiveProgress

TIMEOUT = 1.0
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LiveProgress).decode


class RedisProgressStore:
    """`ProgressStore` in Redis. Connects on first use, and reconnects by itself."""

    def __init__(self, url: str) -> None:
        try:
            self._redis = Redis.from_url(
                url,
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
                retry=Retry(NoBackoff(), 1),  # for a connection that the server has closed
                client_name="bide",
            )
        except ValueError as error:
            raise SetupError(
                f"the Redis URL for progress is invalid: {error}. Write redis://host:6379/0"
            ) from None

    async def put(self, batch: Mapping[AttemptKey, LiveProgress]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for attempt, live in batch.items():
            pipeline.set(_key(attempt), _encode(live), ex=int(LIFE))
        await pipeline.execute()

    async def get(self, attempts: Sequence[AttemptKey]) -> dict[AttemptKey, LiveProgress]:
        found = await self._redis.mget([_key(attempt) for attempt in attempts])
        return {
            attempt: _decode(value)
            for attempt, value in zip(attempts, found, strict=True)
            if isinstance(value, bytes)
        }

    async def close(self) -> None:
        await self._redis.aclose()


def _key(attempt: AttemptKey) -> str:
    job_id, fence = attempt
    return f"bide:progress:{job_id}:{fence}"
