"""The log of a job, seen from its handler: the lines of `ctx.log`, and the records of Python's `logging`.

1. An attempt may log MAX_RECORDS records: BURST at once, then RATE per second. Others are dropped, and the log reports
   their number.
2. Logging works in threads and in signal handlers. It does not wait for a message that is being sent.
3. A record is sent at once if possible, so that the last records before a crash are stored.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic  # by name, because a handler may patch the module
from typing import Any

from bide.core.json_log import JsonFormatter
from bide.server.worker import channels
from bide.server.worker.protocol import text_of

Line = dict[str, Any]
MAX_RECORDS = 10_000  # per attempt
BURST = 1000
RATE = 100  # records per second
TRACEBACK_LIMIT = 4000  # characters of a traceback, from its end
_LEVELS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


class JobLog:
    """Limits the records of one attempt, and sends them in order."""

    def __init__(
        self,
        try_send: Callable[[Line], bool],
        about: Mapping[str, Any] | None = None,
        hide: Callable[[str], str] = str,
    ) -> None:
        """`try_send` returns False, without waiting, while another message is being sent. `about` are the fields of the
        job in JSON lines, and `hide` removes its secrets from a text.
        """
        self._try_send = try_send
        self.about = about or {}
        self.hide = hide
        self._lines: deque[Line] = deque()
        self._sending = threading.Lock()
        self._counting = threading.RLock()  # a signal handler may log while its thread holds it
        self._left = MAX_RECORDS
        self._tokens = float(BURST)
        self._at = monotonic()
        self._dropped: dict[str, int] = {}  # by reason

    def add(self, line: Line) -> None:
        with self._counting:
            if self._is_allowed():
                self._lines.append(line)
            else:
                reason = self._reason()
                if reason not in self._dropped:
                    self._lines.append(_about_dropped(f"{reason}: records are dropped"))
                self._dropped[reason] = self._dropped.get(reason, 0) + 1
        self.flush()

    def _is_allowed(self) -> bool:
        now = monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._at) * RATE)
        self._at = now
        if self._tokens < 1 or not self._left:
            return False
        self._tokens -= 1
        self._left -= 1
        return True

    def _reason(self) -> str:
        if not self._left:
            return f"the attempt has logged {MAX_RECORDS} records, the maximum"
        return f"the attempt logs more than {RATE} records per second"

    def flush(self) -> None:
        """Send the lines. If that must wait, the heartbeat thread does it later."""
        lines = self._lines
        # The thread that holds the lock also sends the lines that others add meanwhile.
        while lines and self._sending.acquire(blocking=False):
            try:
                while lines:
                    if not self._try_send(lines[0]):
                        return
                    lines.popleft()
            finally:
                self._sending.release()

    def finish(self) -> list[Line]:
        """The lines that are not sent yet. Called after the last `add`."""
        with self._sending:
            lines = list(self._lines)
            self._lines.clear()
        for reason, number in self._dropped.items():
            some = f"{number} records were" if number > 1 else "1 record was"
            lines.append(_about_dropped(f"{some} dropped: {reason}"))
        return lines


def _about_dropped(text: str) -> Line:
    return {"level": "warning", "logger": "bide", "message": text}


class JobLogHandler(logging.Handler):
    """Adds the records of `logging` to the log of the job that makes them."""

    def __init__(self, find: Callable[[], JobLog | None]) -> None:
        """`find` returns the log of the job of this thread or task."""
        super().__init__()
        self._find = find

    def install(self) -> None:
        """Attach it to the root logger. If the app has not configured logging, log from INFO on, and print warnings to
        stderr as without this handler, or as JSON if the service logs JSON.
        """
        root = logging.getLogger()
        if not root.handlers:
            root.setLevel(logging.INFO)
            if os.environ.get("BIDE_LOG_FORMAT") == "json":
                printer = logging.StreamHandler()
                printer.setLevel(logging.WARNING)
                printer.setFormatter(JsonFormatter())
                printer.addFilter(self._add_fields)
                root.addHandler(printer)
            elif logging.lastResort is not None:
                root.addHandler(logging.lastResort)
        self.ensure_installed()

    def _add_fields(self, record: logging.LogRecord) -> bool:
        """Add the fields of the job to a record that is printed as JSON."""
        log = self._find()
        if log is not None:
            record.msg, record.args = log.hide(record.getMessage()), ()
            record.__dict__.update(log.about)
        return True

    def ensure_installed(self) -> None:
        """Attach it again if a handler has configured logging again."""
        root = logging.root
        if self not in root.handlers:
            root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if channels.forked:  # only the process that runs the handler can send
            return
        try:
            log = self._find()
            if log is not None:
                log.add(_line_of(record))
        except Exception:
            self.handleError(record)


def _line_of(record: logging.LogRecord) -> Line:
    message = text_of(record.getMessage())
    if record.exc_info is not None and record.exc_info[1] is not None:
        message = f"{message}\n{trace_of(record.exc_info[1])}"
    level = next((name for number, name in _LEVELS if record.levelno >= number), "debug")
    return {"level": level, "logger": text_of(record.name, 200), "message": message}


def trace_of(error: BaseException) -> str:
    """The end of an exception's traceback."""
    try:
        lines = "".join(traceback.format_exception(error))
    except BaseException:  # too deep, or an exception's own methods raise
        lines = f"{type(error).__name__}: its traceback cannot be formatted"
    return text_of(lines[-TRACEBACK_LIMIT:])
