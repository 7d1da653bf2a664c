"""Time limits that HTTP connections and WebSockets share."""

from __future__ import annotations

LINGER = 2.0  # seconds between the last bytes to a client and the abort of its connection, if the client still sends


class SendDeadline:
    """Notices a client that reads nothing while bytes wait for it. Call `passed` about once per second."""

    __slots__ = ("_since", "_timeout", "_unsent")

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._unsent = 0  # bytes in the transport's buffer at the last call
        self._since = 0.0  # when they last became fewer

    def passed(self, now: float, unsent: int) -> bool:
        before, self._unsent = self._unsent, unsent
        if not unsent or unsent < before or not before:
            self._since = now
            return False
        return now - self._since >= self._timeout
