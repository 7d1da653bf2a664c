"""A reader that follows the event log during the faults: it reads the events after the last number that it has seen.

An event that it has missed was committed with a lower number than one that was visible before.
"""

from __future__ import annotations

import threading
import time

import psycopg

from bench.chaos.judge import Violation

NEW = "SELECT id FROM events WHERE id > %s ORDER BY id"
ALL = "SELECT id FROM events ORDER BY id"
SEARCH = "-c search_path=bide"


class Follower(threading.Thread):
    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._over = threading.Event()
        self.seen: list[int] = []

    def run(self) -> None:
        while not self._over.is_set():
            try:
                with psycopg.connect(
                    self._url, autocommit=True, options=SEARCH, connect_timeout=2
                ) as link:
                    while not self._over.is_set():
                        self._read(link)
                        time.sleep(0.02)
            except psycopg.Error:  # a fault, or the schema does not exist yet
                time.sleep(0.1)

    def _read(self, link: psycopg.Connection[tuple[int]]) -> None:
        last = self.seen[-1] if self.seen else 0
        self.seen += [number for (number,) in link.execute(NEW, (last,))]

    def missed(self) -> list[Violation]:
        """Stop, and return the events that were visible only after a later one."""
        self._over.set()
        self.join(10)
        with psycopg.connect(self._url, options=SEARCH) as link:
            self._read(link)
            every = [number for (number,) in link.execute(ALL)]
        return [
            Violation("log", f"event {number} came late")
            for number in sorted(set(every) - set(self.seen))
        ]
