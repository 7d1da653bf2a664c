"""A shelf in Redis: a key an attempt, which goes by itself when nobody puts it again.

Job ids are unique everywhere, so that services which share a Redis do not meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from bide.core.errors import SetupError
from bide.server.progress import LIFE, AttemptKey, LiveProgress

PATIENCE = 1.0
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LiveProgress).decode


class RedisProgressStore:
    """Connects with the first use, and again by itself."""

    def __init__(self, url: str) -> None:
        try:
            self._redis = Redis.from_url(
                url,
                socket_timeout=PATIENCE,
                socket_connect_timeout=PATIENCE,
                retry=Retry(NoBackoff(), 1),  # a connection that the server has ended meanwhile
                client_name="bide",
            )
        except ValueError as error:
            raise SetupError(f"no Redis for progress: {error}. Write redis://host:6379/0") from None

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
