"""A PostgreSQL server on a free port. It runs as a user other than root, because it refuses to run as root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.servers import ServerMissing, processes
from tests.servers.ports import HOST, free_port

OWNERS = ("postgres", "nobody")
KEPT = "BIDE_TEST_KEPT"  # a folder for the data of a new server: `initdb` takes longer than a copy


def programs() -> Path:
    """The folder with `postgres` and `initdb`."""
    named = os.environ.get("BIDE_POSTGRES_BIN")
    found = shutil.which("postgres")
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parents[1].name)
    )
    places = [Path(named)] if named else [Path(found).resolve().parent] if found else []
    places += [place.parent for place in reversed(debian)]
    for place in places:
        if (place / "postgres").exists() and (place / "initdb").exists():
            return place
    raise ServerMissing(
        "there is no PostgreSQL server: apt-get install postgresql, or name its programs in BIDE_POSTGRES_BIN"
    )


class Postgres:
    """One server and its data."""

    def __init__(
        self,
        home: str | None = None,
        *,
        safe: bool = True,
        settings: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        admin: str = "bide",
    ) -> None:
        """`safe=False`: do not wait for the disk, for tests in which the server is never killed."""
        self.admin = admin
        self._env = {**os.environ, **(env or {})}
        self._programs = programs()
        self._as = _owner()
        self.folder = Path(tempfile.mkdtemp(prefix="bide-postgres-", dir=home))
        self._data = self.folder / "data"
        unsafe = () if safe else ("fsync=off", "full_page_writes=off")
        self._settings = [f"--{setting}" for setting in (*unsafe, *settings)]
        if "user" in self._as:
            shutil.chown(self.folder, self._as["user"])
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.end()
            raise

    @property
    def url(self) -> str:
        return f"postgresql://{self.admin}@{HOST}:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _initialise(self) -> None:
        kept = os.environ.get(KEPT)
        if kept is None:
            self._initdb()
        else:
            _copy(self._template(Path(kept)), self._data)

    def _template(self, folder: Path) -> Path:
        """The data of a new server in `folder`, which processes share: the first of them makes it."""
        template = folder / f"postgres-{self.admin}"
        with (folder / "postgres.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not template.exists():
                self._initdb()
                part = template.with_suffix(".part")  # a copy may be interrupted
                _copy(self._data, part)
                part.rename(template)
                shutil.rmtree(self._data)
        return template

    def _initdb(self) -> None:
        command = [str(self._programs / "initdb"), "-D", str(self._data), "-U", self.admin]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, check=False, **self._as)
        if done.returncode != 0:
            raise ServerMissing(f"initdb failed: {done.stderr.decode()}")

    def start(self) -> None:
        """Returns when the server accepts connections; after a kill, when it has recovered."""
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
        command += ["-h", HOST, "-p", str(self.port), "-c", "shared_buffers=64MB"]
        # In the data folder, because nothing removes the segments in /dev/shm of a server that was killed.
        command += ["-c", "dynamic_shared_memory_type=mmap", *self._settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as,
            )
        end = time.monotonic() + 60
        while not self._takes_connections():
            if self._process.poll() is not None or time.monotonic() > end:
                raise ServerMissing(f"PostgreSQL did not start: {self.log[-2000:]}")
            time.sleep(0.02)

    def _takes_connections(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def require_password(self, user: str) -> None:
        """From now on, also for a user that does not exist yet."""
        import psycopg

        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {user} {HOST}/32 scram-sha-256\n{rules.read_text()}")
        with psycopg.connect(self.url) as connection:
            connection.execute("SELECT pg_reload_conf()")

    def kill(self) -> None:
        """Ends all its processes with SIGKILL, as a crash of the machine would."""
        if self._process is None:
            return
        backends = processes.descendants(self.pid)
        processes.kill([self.pid, *backends])
        self._process.wait()
        while any(Path(f"/proc/{pid}").exists() for pid in backends):
            time.sleep(0.01)
        self._process = None

    def stop(self, number: int = signal.SIGSTOP) -> None:
        """Stops all its processes, or continues them with SIGCONT."""
        processes.send([self.pid, *processes.descendants(self.pid)], number)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            # Without a checkpoint, because the data is removed.
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def postgres(home: str | None = None, *, settings: Sequence[str] = ()) -> Iterator[Postgres]:
    server = Postgres(home, settings=settings)
    try:
        yield server
    finally:
        server.end()


def _copy(source: Path, target: Path) -> None:
    """With its owners."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _owner() -> dict[str, Any]:
    """The user that the server runs as: the current one, unless that is root."""
    if os.geteuid() != 0:
        return {}
    for name in OWNERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": name, "group": entry.pw_gid, "extra_groups": []}
    raise ServerMissing("PostgreSQL does not run as root, and there is no user postgres or nobody")
