"""A standby that lagged behind is promoted: what the primary had committed last has never been."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from bide.core.jobs.record import Status
from bide.core.jobs.state_machine import Stale, Succeeded
from bide.server.store import EventFilter
from bide.testing import ManualClock
from bide.testing.store.harness import LEASE
from tests.integration.cable import Cable
from tests.integration.test_store_postgres import Process
from tests.servers import ServerMissing
from tests.servers.ports import HOST, free_port
from tests.servers.postgres import Postgres
from tests.waiting import eventually


class Standby:
    """The standby of a primary, on its own port; it follows until `leave`."""

    def __init__(self, primary: Postgres) -> None:
        self.port = free_port()
        self._data = primary.folder / "standby"
        self._folder = primary.folder
        self._as = primary._as
        self._programs = primary._programs
        source = ["-h", HOST, "-p", str(primary.port), "-U", "bide"]
        copy = [
            str(self._programs / "pg_basebackup"),
            "-D",
            str(self._data),
            "-R",
            "-X",
            "stream",
            *source,
        ]
        subprocess.run(
            [*copy, "-c", "fast"], check=True, cwd=self._folder, capture_output=True, **self._as
        )
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self._folder)]
        with (self._folder / "standby.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-h", HOST, "-p", str(self.port)],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                **self._as,
            )

    def ask(self, sql: str) -> object:
        url = f"postgresql://bide@{HOST}:{self.port}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(sql.encode()).fetchone()
            return None if row is None else row[0]

    def follows(self, table: str) -> bool:
        try:
            return self.ask(f"SELECT to_regclass('{table}') IS NOT NULL") is True
        except psycopg.OperationalError:
            return False

    def leave(self) -> None:
        """Follows no primary any more."""
        (self._data / "postgresql.auto.conf").write_text("")
        self.ask("SELECT pg_reload_conf()")

    def end(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(10)


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Postgres]:
    try:
        server = Postgres(safe=False, settings=["wal_level=replica"])
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    yield server
    server.end()


async def test_a_failover_that_loses_a_claim(primary: Postgres) -> None:
    cable = Cable(primary.url)
    await cable.mend()
    url = f"postgresql://bide@{HOST}:{cable.port}/postgres?schema=failover"
    clock, numbers = ManualClock(), count(1)
    first, second = Process(url, clock, numbers), Process(url, clock, numbers)
    await first.open()
    await second.open()
    job = await first.put()
    standby = await asyncio.to_thread(Standby, primary)
    try:
        await eventually(lambda: standby.follows("failover.jobs"))
        # It receives nothing from here on.
        standby.leave()
        await eventually(lambda: standby.ask("SELECT count(*) FROM pg_stat_wal_receiver") == 0)
        (claim,) = await first.claim(owner="a")
        await eventually(lambda: len(second.published) == 2)
        await cable.cut()
        primary.kill()
        cable._goal = (HOST, standby.port)
        standby.ask("SELECT pg_promote()")
        await cable.mend()
        await eventually(lambda: first.resets == second.resets == 1)
        # Numbers name other events now.
        await eventually(lambda: first.epochs[-1] == second.epochs[-1] != first.epochs[0])
        events = await first.store.events()
        assert len(events) < len(first.tail)
        assert (await first.store.read_log(EventFilter())).epoch == first.epochs[-1]
        assert (await second.get(job.id)).status is Status.PENDING
        (again,) = await second.claim(owner="b")
        assert again.job.fence == claim.job.fence == 1
        (late,) = await first.store.apply([Succeeded(job_id=job.id, owner="a", fence=1)])
        assert isinstance(late, Stale)
        assert await first.store.renew("a", [(job.id, 1)], LEASE) == [(job.id, 1)]
        assert (await second.succeed(again.job)).status is Status.DONE
        await eventually(
            lambda: [e.job["status"] for e in first.published][-2:] == ["PROCESSING", "DONE"]
        )
        assert (await first.get(job.id)).status is Status.DONE
    finally:
        await first.store.close()
        await second.store.close()
        await cable.cut()
        await asyncio.sleep(0.1)
        standby.end()
