"""Files sent by the client to a real service over a network that breaks: killed clients, killed services, cuts."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncClient, Client
from bide.client.uploads.upload_session import DIRECT, Pace
from bide.core.errors import ServiceError, UploadFailed
from tests.acceptance.cutter import Cutter
from tests.apps.files import DOCX, XLSX
from tests.servers.service import ServiceProcess, importing

MB = 1024 * 1024
SIZE = 24 * MB
OVERHEAD = 200_000  # of requests that are no bytes of the file
PATIENCE = 60.0
ROOT = Path(__file__).parents[2]
MEASURED = """
import resource, sys
from bide import Client
with Client(sys.argv[1]) as client:
    client.submit("look", file=sys.argv[2]).result(timeout=60)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    client.submit("look", file=sys.argv[3]).result(timeout=60)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    process = ServiceProcess(folder, "tests.apps.files:app", env=importing(ROOT))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def network(service: ServiceProcess) -> Iterator[Cutter]:
    with Cutter(service.port) as cutter:
        yield cutter


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.bin"
    path.write_bytes(os.urandom(MB) * (SIZE // MB))
    with path.open("r+b") as file:  # no two pieces of it alike
        for number in range(SIZE // MB):
            file.seek(number * MB)
            file.write(number.to_bytes(8))
    return path


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def jobs(service: ServiceProcess, label: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.ask("GET", f"/jobs?label=test:{label}")["jobs"]
    return found


def command(network: Cutter, film: Path, ledger: Path, label: str) -> list[str]:
    what = [sys.executable, "-m", "bide", "submit", "look", "--url", network.url, "--file", str(film)]
    return [*what, "--ledger", str(ledger), "--label", f"test={label}", "--wait", "--json"]


def test_a_killed_client_goes_on_from_its_ledger_and_makes_one_job(
    service: ServiceProcess, network: Cutter, film: Path, tmp_path: Path
) -> None:
    network.stop_at = SIZE // 2
    submit = command(network, film, tmp_path / "ledger", "killed")
    first = subprocess.Popen(submit, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert network.stopped.wait(PATIENCE)
    finally:
        first.kill()
        first.communicate()
    assert jobs(service, "killed") == []
    network.go_on()

    second = subprocess.run(submit, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert second.returncode == 0, second.stderr
    job = json.loads(second.stdout)
    assert job["result"]["read"] == sha256(film)
    assert SIZE <= network.sent < SIZE + OVERHEAD, "what the service had was not sent again"
    assert [one["jobId"] for one in jobs(service, "killed")] == [job["jobId"]]


def test_a_killed_service_is_waited_for_and_gone_on_with(
    service: ServiceProcess, network: Cutter, film: Path
) -> None:
    network.stop_at = SIZE // 2
    found: list[Any] = []

    def send() -> None:
        with Client(network.url) as client:
            job = client.submit("look", file=film, labels={"test": "service"})
            found.append(job.result(timeout=PATIENCE))

    sender = threading.Thread(target=send)
    sender.start()
    assert network.stopped.wait(PATIENCE)
    service.kill()
    network.cut()
    network.go_on()
    service.start()
    sender.join(PATIENCE)
    assert [one["read"] for one in found] == [sha256(film)]
    assert len(jobs(service, "service")) == 1


async def test_a_network_that_cuts_everything_off_only_takes_longer(
    service: ServiceProcess, network: Cutter, film: Path
) -> None:
    network.cut_every = 3 * MB
    async with AsyncClient(network.url, pace=Pace(base=0.1)) as client:
        job = await client.submit("look", file=film, labels={"test": "cut"})
        assert (await job.result(timeout=PATIENCE))["read"] == sha256(film)
    assert network.connections >= SIZE // (3 * MB)
    assert network.sent < 2 * SIZE, "again only what was on its way when it was cut"
    assert len(jobs(service, "cut")) == 1


async def test_the_size_decides_which_way_a_file_goes(service: ServiceProcess, tmp_path: Path) -> None:
    for size, requests in ((DIRECT - 1, 1), (DIRECT, 4)):  # begin, most of it, the last piece, the job
        path = tmp_path / "zeros"
        with path.open("wb") as file:
            file.truncate(size)
        async with AsyncClient(service.url) as client:
            job = await client.submit("look", file=path)
            assert client.requests == requests
            result = await job.result(timeout=PATIENCE)
        assert (result["size"], result["read"]) == (size, sha256(path))


@pytest.mark.parametrize("size", [1000, DIRECT])
async def test_the_same_file_is_the_same_job_when_asked_for(
    service: ServiceProcess, tmp_path: Path, size: int
) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_bytes(size.to_bytes(8) * (size // 8))
    async with AsyncClient(service.url) as client:
        first, second = [
            await client.submit("look", {"note": "x"}, file=path, dedupe="content") for path in paths
        ]
        other = await client.submit("look", {"note": "y"}, file=paths[0], dedupe="content")
    assert first.id == second.id != other.id


@pytest.mark.parametrize(
    ("kind", "input", "pointer"),
    [
        ("lock", {}, "/kind"),
        ("look", {"note": 7}, "/input/note"),
        ("plain", {"number": 1}, "/input"),
        ("merge", {}, "/parameter"),
    ],
)
async def test_a_wrong_submission_of_a_large_file_is_refused_before_a_byte_of_it_is_sent(
    network: Cutter, film: Path, kind: str, input: dict[str, Any], pointer: str
) -> None:
    async with AsyncClient(network.url) as client:
        with pytest.raises(ServiceError) as raised:
            await client.submit(kind, input, file=film)
    assert raised.value.status == 422
    assert [error["pointer"] for error in raised.value.problem["errors"]] == [pointer]
    assert network.sent < 2000


async def test_several_files_and_long_inputs_and_odd_names(
    service: ServiceProcess, tmp_path: Path
) -> None:
    odd = tmp_path / os.fsdecode(b'\xff "odd" %22 \xc3\xa9.txt')
    odd.write_bytes(b"odd")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(DIRECT)
    async with AsyncClient(service.url) as client:
        small = await client.submit("read", files={"pages": [odd, odd]})
        both = await client.submit("read", files={"pages": [odd, large]})
        long = await client.submit("look", {"note": "x" * 50_000}, file=large)
        first, second = await small.result(timeout=PATIENCE)
        assert first["read"] == second["read"] == sha256(odd)
        names = {first["name"]}
        assert [one["size"] for one in await both.result(timeout=PATIENCE)] == [3, DIRECT]
        names.add((await both.result())[0]["name"])
        assert len(names) == 1 and names.pop().endswith(' "odd" %22 é.txt'), "the same, either way"
        assert len((await long.result(timeout=PATIENCE))["note"]) == 50_000


async def test_a_file_of_the_wrong_type_is_refused_by_its_first_bytes(
    network: Cutter, film: Path
) -> None:
    async with AsyncClient(network.url) as client:
        with pytest.raises(ServiceError) as raised:
            await client.submit("picture", file=film)
    assert raised.value.code == "wrong-content"


def office(path: Path, main: str) -> Path:
    """A zip file with the entries of an office document, in the order in which Office writes them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("[Content_Types].xml", "_rels/.rels", main, "docProps/core.xml"):
            file.writestr(name, f"<?xml version='1.0'?><part>{name}</part>")
    return path


async def test_office_documents_are_recognized_inside_of_zip(
    service: ServiceProcess, tmp_path: Path
) -> None:
    # The names and declared types do not say what the files are.
    sheet = office(tmp_path / "grades.bin", "xl/workbook.xml")
    letter = office(tmp_path / "letter.bin", "word/document.xml")
    async with AsyncClient(service.url) as client:
        for kind, file in (("sheet", sheet), ("letter", letter)):
            job = await client.submit(kind, file=file)
            assert (await job.result(timeout=PATIENCE))["read"] == sha256(file)
        for kind, file, shown in (("sheet", letter, DOCX), ("letter", sheet, XLSX)):
            with pytest.raises(ServiceError, match=f"its first bytes show {shown}") as raised:
                await client.submit(kind, file=file)
            assert raised.value.code == "wrong-content"


async def test_a_file_that_changes_meanwhile_leaves_nothing_at_the_service(
    service: ServiceProcess, network: Cutter, film: Path, tmp_path: Path
) -> None:
    class Meddler:
        total = 0
        sent = 0

        def update(self, more: int) -> None:
            self.sent += more
            if self.sent == 4 * MB:
                with film.open("ab") as file:
                    file.write(b"more")

    async with AsyncClient(network.url, ledger=tmp_path / "ledger") as client:
        with pytest.raises(UploadFailed, match=f"it had {SIZE} bytes and now has {SIZE + 4}"):
            await client.submit("look", file=film, labels={"test": "changed"}, progress=Meddler())
        assert jobs(service, "changed") == []
        job = await client.submit("look", file=film, labels={"test": "changed"}, progress=False)
        assert (await job.result(timeout=PATIENCE))["size"] == SIZE + 4


def test_memory_does_not_grow_with_the_file(service: ServiceProcess, tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for path, size in ((small, DIRECT), (large, 6 * DIRECT)):
        with path.open("wb") as file:
            file.truncate(size)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, service.url, str(small), str(large)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 30_000, "kilobytes more than for a file of a sixth"
