"""The Redis backend of shared budgets: one hash per budget, changed by a script, in the server's time."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from bide.client.budgets.backend import NO_RECORD, BackendReply, BackendUnavailable
from bide.core.errors import SetupError

TIMEOUT = 1.0
EXPIRY = 8 * 86400  # seconds after the last use; the longest known limit is per week
SALT = "bide:budgets:salt"
_SWAP = """
local version = redis.call('HGET', KEYS[1], 'version') or ''
local now = redis.call('TIME')
if version == ARGV[1] then
  redis.call('HSET', KEYS[1], 'version', ARGV[2], 'data', ARGV[3])
  redis.call('EXPIRE', KEYS[1], ARGV[4])
  return {1, now[1], now[2]}
end
return {0, now[1], now[2], version, redis.call('HGET', KEYS[1], 'data') or ''}
"""


class RedisBackend:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
        try:
            self._redis = Redis.from_url(
                url,
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
                retry=Retry(NoBackoff(), 0),  # a retry could make a change twice
                client_name="bide",
            )
        except ValueError as error:
            raise SetupError(
                f"{self.shown} is not a Redis URL: {error}. Use redis://host:6379/0"
            ) from None
        self._script = self._redis.register_script(_SWAP)

    def swap(self, name: str, known: str, version: str, data: bytes) -> BackendReply:
        try:
            answer: Any = self._script(keys=[f"bide:budget:{name}"], args=[known, version, data, EXPIRY])
        except (RedisError, OSError) as error:
            raise BackendUnavailable(str(error) or type(error).__name__) from error
        now = int(answer[1]) + int(answer[2]) / 1e6
        return (
            BackendReply(True, now)
            if answer[0]
            else BackendReply(False, now, answer[3].decode(), answer[4])
        )

    def read(self, name: str) -> BackendReply:
        return self.swap(name, "?", NO_RECORD, b"")  # "?" is never a version, so nothing is written

    def salt(self, first: bytes) -> bytes:
        try:
            self._redis.set(SALT, first, nx=True)
            found = self._redis.get(SALT)
        except (RedisError, OSError) as error:
            raise BackendUnavailable(str(error) or type(error).__name__) from error
        return found if isinstance(found, bytes) else first

    def close(self) -> None:
        self._redis.close()
