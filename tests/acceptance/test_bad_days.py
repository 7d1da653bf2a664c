"""What goes wrong around a service: its disk, its files, its clock, its limits. Every message says what to do."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import time
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bide.server.store.migrations import scripts
from tests.acceptance.serving import Serving, mounted
from tests.waiting import until

NEWEST = scripts("sqlite")[-1][0]
PAGE = 4096


@contextlib.contextmanager
def running(service: Serving) -> Iterator[Serving]:
    service.start()
    try:
        yield service
    finally:
        service.stop()


# --- the disk is full


class SmallDisk(Serving):
    """Its data is on a small disk that others fill, too."""

    def __init__(self, folder: Path, size: str = "4m") -> None:
        self.disk = folder / "disk"
        self.disk.mkdir()
        prefix = mounted(f"mount -t tmpfs -o size={size} none $disk", disk=self.disk)
        super().__init__(folder, prefix=prefix, data=self.disk / "data")
        self.ballast = b"ballast!" * (PAGE // 8)

    def leave(self, pages: int) -> None:
        """So much is free from now on."""
        ballast = self.inside(self.disk) / "ballast"
        ballast.touch()
        free = os.statvfs(ballast).f_bavail - pages
        if free < 0:
            os.truncate(ballast, max(0, ballast.stat().st_size + free * PAGE))
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
            for _ in range(free):
                file.write(self.ballast)

    def unready(self) -> int:
        """The status of the first answer that says that it is not ready."""

        def look() -> int | None:
            try:
                self.ask("GET", "/readyz")
            except urllib.error.HTTPError as error:
                with error:
                    return error.code
            return None

        return until(look)

    def make_room(self) -> None:
        (self.inside(self.disk) / "ballast").unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with running(SmallDisk(tmp_path)) as service:
        assert isinstance(service, SmallDisk)
        service.until_ready()
        yield service


def test_a_full_disk_is_reported_and_no_accepted_job_is_lost(small_disk: SmallDisk) -> None:
    earlier = small_disk.post("work", number=1)
    slow = small_disk.post("work", number=2, seconds=1.0)
    until(lambda: small_disk.job(slow)["steps"])
    small_disk.ended(earlier)
    small_disk.leave(0)
    refused = small_disk.refused("work", number=3)
    assert refused is not None
    answer, body = refused
    assert answer.status == 503 and int(answer.headers["Retry-After"]) > 0
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "full" in json.loads(body)["detail"] and "free space" in json.loads(body)["detail"]
    assert small_disk.job(earlier)["result"] == 1, "reads continue"
    assert small_disk.unready() == 503
    until(lambda: f"{slow} second" in small_disk.marks.read_text())  # which cannot be kept
    assert small_disk.job(slow)["status"] == "PROCESSING"
    small_disk.make_room()
    small_disk.insist("GET", "/readyz")
    assert small_disk.ended(slow)["result"] == 2
    assert small_disk.job(slow)["attempt"] == 1
    assert small_disk.marks.read_text().count(f"{slow} first\n") == 1
    assert small_disk.ended(small_disk.post("work", number=4))["result"] == 4
    listed = small_disk.ask("GET", "/jobs?limit=100")["jobs"]
    assert len(listed) == 3, "what was refused is not there"
    assert "free space" in small_disk.said() and "Traceback" not in small_disk.said()


def test_a_disk_that_is_full_at_each_write(small_disk: SmallDisk) -> None:
    """From no room at all, page by page: every transaction of a job's life meets a full disk at every page of it."""
    accepted: dict[str, int] = {}
    for number in range(6):
        small_disk.leave(0)
        kind = "family" if number % 2 else "work"
        for pages in range(60):
            small_disk.leave(pages)
            if number not in accepted.values():
                with contextlib.suppress(OSError):
                    accepted[small_disk.post(kind, number=number)] = number
            time.sleep(0.01)
    small_disk.make_room()
    assert sorted(accepted.values()) == list(range(6))
    for job_id, number in accepted.items():
        job = small_disk.ended(job_id)
        assert job["status"] == "DONE", job
        assert job["result"] == (2 * number + 1 if number % 2 else number)
    marks = small_disk.marks.read_text().splitlines()
    assert len(marks) == len(set(marks)) == 3 * 2 + 3 * 2 * 2, "no step was repeated"


def test_a_stop_on_a_full_disk_comes_to_its_end(small_disk: SmallDisk) -> None:
    parent = small_disk.post("family", number=1, seconds=1.0)
    until(lambda: small_disk.job(parent)["children"])
    small_disk.leave(0)
    assert small_disk.end(signal.SIGTERM) == 0, small_disk.said()
    assert "free space" in small_disk.said() and "Traceback" not in small_disk.said()


def test_an_output_that_does_not_fit_is_tried_again(small_disk: SmallDisk) -> None:
    small_disk.leave(150)
    job_id = small_disk.post("paint", size=1_000_000)

    def failed() -> bool:
        error = small_disk.job(job_id)["error"]
        return error is not None and error["code"] == "DISK_FULL"

    until(failed)
    assert "free disk space" in small_disk.job(job_id)["error"]["message"]
    # Of the first attempt; the next one may have begun.
    assert not list((small_disk.inside(small_disk.data) / "blobs" / job_id / "1").rglob("*.part"))
    small_disk.make_room()
    assert small_disk.ended(job_id)["result"] == 1_000_000


def test_a_start_on_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    fill = "mount -t tmpfs -o size=64k none $disk; cat /dev/zero > $disk/ballast 2> /dev/null || true"
    said = Serving(tmp_path, prefix=mounted(fill, disk=disk), data=disk / "data").refusal()
    assert str(disk) in said and "Free disk space" in said


# --- the data folder and its files


def test_a_data_folder_that_cannot_be_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    script = "mount --bind $data $data; mount -o remount,ro,bind $data"
    said = Serving(tmp_path, prefix=mounted(script, data=data)).refusal()
    assert f"cannot write to the data folder {data}" in said
    assert "mount the disk writable" in said and "--data" in said


def test_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    with running(Serving(tmp_path)) as service:
        service.ended(service.post("work", number=1))
    file = service.data / "bide.db"
    script = "mount --bind $file $file; mount -o remount,ro,bind $file"
    said = Serving(tmp_path, prefix=mounted(script, file=file)).refusal()
    assert str(file) in said and "give this user write permission" in said
    with running(service):
        assert len(service.ask("GET", "/jobs")["jobs"]) == 1


def test_a_damaged_database(tmp_path: Path) -> None:
    with running(Serving(tmp_path)) as service:
        for number in range(20):
            service.ended(service.post("work", number=number))
    file = service.data / "bide.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:PAGE] + b"\xa5" * (len(whole) - 2 * PAGE) + whole[-PAGE:])
    said = service.refusal()
    assert str(file) in said
    for way_out in ("backup", "move it away", ".recover"):
        assert way_out in said
    assert file.stat().st_size == len(whole), "it is left as it is"
    file.write_bytes(whole)
    with running(service):
        assert len(service.ask("GET", "/jobs?limit=100")["jobs"]) == 20


def test_a_log_that_was_cut_off(tmp_path: Path) -> None:
    """What was committed before the cut is there, wherever that is; the rest is as if it had never been."""
    service = Serving(tmp_path)
    service.start()
    log = service.data / "bide.db-wal"
    sizes: dict[str, int] = {}
    for number in range(6):
        job_id = service.post("work", number=number)
        sizes[job_id] = log.stat().st_size
        service.ended(job_id)
    service.kill()
    whole = tmp_path / "whole"
    shutil.copytree(service.data, whole)
    end = log.stat().st_size
    # A checkpoint would start the log again. The last job may have ended before its size was taken.
    assert list(sizes.values()) == sorted(set(sizes.values())) and end >= max(sizes.values())
    for cut in (0, 20, sizes[min(sizes)] + 100, end // 2, end - 1):
        shutil.rmtree(service.data)
        shutil.copytree(whole, service.data)
        os.truncate(log, cut)
        if cut <= 32 and not (service.data / "bide.db").stat().st_size:
            continue
        with running(service):
            kept = {job["jobId"] for job in service.ask("GET", "/jobs")["jobs"]}
            expected = {job_id for job_id, size in sizes.items() if size <= cut}
            assert expected <= kept <= set(sizes)
            for job_id in kept:
                assert service.ended(job_id)["status"] == "DONE"


def test_data_of_a_newer_bide(tmp_path: Path) -> None:
    with running(Serving(tmp_path)) as service:
        job_id = service.post("work", number=1)
        service.ended(job_id)
    with contextlib.closing(sqlite3.connect(service.data / "bide.db")) as database:
        database.execute(f"PRAGMA user_version = {NEWEST + 1}")
    said = service.refusal()
    assert f"version {NEWEST + 1}" in said and f"up to {NEWEST}" in said
    assert "install the newer bide" in said and "another data folder" in said
    with contextlib.closing(sqlite3.connect(service.data / "bide.db")) as database:
        assert database.execute("SELECT id FROM jobs").fetchall() == [(job_id,)]


def test_a_second_service_on_the_same_folder(tmp_path: Path) -> None:
    with running(Serving(tmp_path)) as first:
        job_id = first.post("work", number=1, seconds=0.5)
        said = Serving(tmp_path).refusal()
        assert f"another service (process {first.pid})" in said and str(first.data) in said
        assert "stop it" in said and "--data" in said
        assert first.ended(job_id)["attempt"] == 1, "it has taken nothing from the first"


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_a_network_file_system(tmp_path: Path, kind: str) -> None:
    """No such file system can be had here: the system's word for it is replaced, as the service reads it."""
    fake = tmp_path / "mountinfo"
    fake.write_text(
        "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        f"31 22 0:44 / {tmp_path} rw,relatime shared:7 - {kind} server:/export rw,vers=4.2\n"
    )
    service = Serving(tmp_path, prefix=mounted("mount --bind $fake /proc/$$/mountinfo", fake=fake))
    said = service.refusal()
    assert f"network file system ({kind})" in said and str(service.data) in said
    assert "local disk" in said and "--data" in said
    assert not service.data.exists()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        service = Serving(tmp_path)
        service.port = taken.getsockname()[1]
        said = service.refusal()
    assert f"port {service.port} on 127.0.0.1 is in use" in said
    assert "stop the other process" in said and "--port" in said
    with running(service):
        assert service.ended(service.post("work", number=1))["result"] == 1


# --- the clock


@pytest.fixture
def stepped(tmp_path: Path) -> tuple[Serving, Path]:
    """A service, and the file that says by how many seconds its machine's clock is wrong."""
    service = Serving(tmp_path)
    return service, service.step_clock(0)


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_a_clock_that_is_set_back_while_the_service_runs(stepped: tuple[Serving, Path]) -> None:
    service, step = stepped
    with running(service):
        wish = {"kind": "work", "input": {"number": 1}, "runAt": in_seconds(1.5)}
        job_id = service.ask("POST", "/jobs", wish)["jobId"]
        step.write_text("-3600")
        later = service.post("work", number=2)
        assert service.ended(later)["result"] == 2
        assert service.ended(job_id)["result"] == 1
        assert later > job_id, "ids increase with time"


def test_a_clock_that_is_an_hour_behind_at_the_next_start(stepped: tuple[Serving, Path]) -> None:
    service, step = stepped
    service.start()
    done = service.post("work", number=1)
    before = service.ended(done)
    cut_off = service.post("work", number=2, seconds=2.0)
    until(lambda: service.job(cut_off)["steps"])
    wish = {"kind": "work", "input": {"number": 3}, "runAt": in_seconds(2.0)}
    waiting = service.ask("POST", "/jobs", wish)["jobId"]
    service.kill()
    step.write_text("-3600")
    with running(service):
        assert service.ended(cut_off)["result"] == 2, "its lease is not an hour long"
        assert service.ended(waiting)["result"] == 3, "it does not wait for an hour"
        new = service.post("work", number=4)
        after = service.ended(new)
        assert new > waiting and after["createdAt"] > before["finishedAt"]
        assert service.job(done)["result"] == 1
        assert "the clock was set back" in service.said() and "set it right" in service.said()
    with contextlib.closing(sqlite3.connect(service.data / "bide.db")) as database:
        times = [at for (at,) in database.execute("SELECT at FROM events ORDER BY id")]
    assert len(times) > 10 and times == sorted(times)


# --- file descriptors


def test_no_file_descriptors_left(tmp_path: Path) -> None:
    with running(Serving(tmp_path)) as service, contextlib.closing(Line(service)) as line:
        earlier = [line.post("work", number=n, seconds=0.5) for n in range(3)]
        _, hard = resource.prlimit(service.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (10, hard))  # fewer than are open
        during = line.post("work", number=3)
        crash = line.post("crash")
        until(lambda: "raise the limit" in service.said() and "cannot start" in service.said())
        assert "ulimit -n" in service.said() and "LimitNOFILE=" in service.said()
        status, answer = line.ask("GET", "/readyz")
        assert status == 200 and "ulimit -n" in answer["warnings"][0]["detail"]
        status, answer = line.ask("GET", "/jobs")
        # The connection for lists is opened once.
        assert status == 200 or (status == 503 and "ulimit -n" in answer["detail"])
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (hard, hard))
        for number, job_id in enumerate([*earlier, during]):
            assert service.ended(job_id)["result"] == number
        assert service.ended(crash)["error"]["code"] == "POISONED"
        service.until_ready()
        assert "Traceback" not in service.said()


class Line:
    """A connection that stays open, for a service that can accept no other."""

    def __init__(self, service: Serving) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
        self._connection.connect()
        self.close = self._connection.close

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, {"Content-Type": "application/json"})
        with self._connection.getresponse() as answer:
            return answer.status, json.load(answer)

    def post(self, kind: str, **input: Any) -> str:
        status, answer = self.ask("POST", "/jobs", {"kind": kind, "input": input})
        assert status == 202, answer
        job_id: str = answer["jobId"]
        return job_id
