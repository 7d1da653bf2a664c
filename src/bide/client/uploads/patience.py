"""How long to go on with an upload that does not get ahead.

1. A reset, a timeout, a 5xx or a 429 is waited out with full jitter, or as long as Retry-After says.
2. Whatever gets ahead begins the count anew: a bad connection may take as long as it takes.
3. A service that has never answered is reported at once when nothing listens there, and after a few tries when it closes
   each connection: it may be the wrong address.
"""

from __future__ import annotations

import logging

from bide.client.http.transport import transient
from bide.client.waiting import Pace
from bide.core.errors import ServiceError, ServiceUnreachable, UploadFailed

log = logging.getLogger("bide.client")
GIVE_UP = 600.0  # seconds without getting ahead
UNANSWERED = 5  # connections in a row that are closed without any answer, before the first one
FULL = 507  # somebody has to make room: that is told, not waited for


class Patience:
    """Of one submission."""

    def __init__(self, pace: Pace, what: str) -> None:
        self._pace = pace
        self._what = what
        self._failures = 0
        self._met = False
        self._since = pace.now()

    def met(self) -> None:
        """The service has answered, so it is there."""
        self._met = True

    def ahead(self) -> None:
        """More of it has arrived than ever before."""
        self._met = True
        self._failures = 0
        self._since = self._pace.now()

    async def after(self, error: ServiceError | ServiceUnreachable) -> None:
        """Waits until it may be tried again; raises what no waiting will mend."""
        if not self._worth(error):
            raise error
        if isinstance(error, ServiceError):
            self._met = True
        waited = self._pace.now() - self._since
        if waited > GIVE_UP:
            raise UploadFailed(
                f"{self._what} did not get ahead for {waited / 60:.0f} minutes: {error}", resumable=True
            ) from error
        if not self._failures:
            log.warning("%s goes on in a moment: %s", self._what, error)
        pause = self._pace.after_failure(self._failures, error)
        self._failures += 1
        await self._pace.sleep(pause)

    def _worth(self, error: ServiceError | ServiceUnreachable) -> bool:
        if isinstance(error, ServiceUnreachable):
            return self._met or (error.connected and self._failures < UNANSWERED)
        if error.status == FULL:
            return False
        told = error.problem.get("retryable")
        return told is True or (transient(error) and told is not False)
