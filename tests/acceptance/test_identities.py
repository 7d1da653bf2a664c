"""`bide serve --auth keys` and `bide keys`, as processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import Client
from bide.core.errors import ServiceError
from tests.servers.service import NotStarted, ServiceProcess
from tests.waiting import until

TARGET = "tests.apps.echo:app"


def bide(*arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """Run a command; return its output and its messages."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("BIDE_")}
    done = subprocess.run(
        [sys.executable, "-m", "bide", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**clean, **environment},
        timeout=60,
    )
    assert done.returncode == code, (arguments, done)
    return done.stdout, done.stderr


def create(data: Path, *arguments: str) -> str:
    return bide("keys", "create", "--data", str(data), *arguments)[0].strip()


class Protected(ServiceProcess):
    admin = ""

    def bide(self, *arguments: str, key: str, code: int = 0) -> str:
        out, said = bide(*arguments, "--url", self.url, code=code, BIDE_KEY=key)
        assert key not in said
        return out if code == 0 else said


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    folder = tmp_path_factory.mktemp("identities")
    service = Protected(folder, TARGET, workers=1, options=["--auth", "keys"])
    service.admin = create(service.data, "--scope", "admin,read", "--name", "operator")
    service.start()
    yield service
    service.stop()
    log = (folder / "serve.log").read_text()
    assert "callers need an API key" in log
    assert service.admin.rpartition("_")[2] not in log


def test_keys_are_managed_over_http(service: Protected) -> None:
    made = json.loads(
        service.bide(
            "keys", "create", "--tenant", "a", "--scope", "read,submit", "--json", key=service.admin
        )
    )
    key = made["key"]
    assert service.bide("submit", "echo", "--wait", key=key)
    assert len(service.bide("list", "--json", key=key).splitlines()) == 1
    assert service.bide("list", "--json", key=service.admin) == ""
    refused = service.bide("keys", "list", key=key, code=1)
    assert "403 forbidden" in refused and "`admin`" in refused
    listed = [
        json.loads(line)
        for line in service.bide("keys", "list", "--json", key=service.admin).splitlines()
    ]
    assert {one["name"] for one in listed} == {"operator", ""}
    rotated = json.loads(
        service.bide("keys", "rotate", made["id"], "--overlap", "0s", "--json", key=service.admin)
    )
    assert "401 unauthenticated" in service.bide("list", key=key, code=1)
    assert service.bide("list", "--json", key=rotated["key"])
    service.bide("keys", "revoke", made["id"], key=service.admin)
    assert "401 unauthenticated" in service.bide("list", key=rotated["key"], code=1)


def test_the_client_sends_its_key_with_every_request(service: Protected, tmp_path: Path) -> None:
    """Submission, batch, event stream, polls, files, uploads and downloads."""
    key = json.loads(service.bide("keys", "create", "--tenant", "client", "--json", key=service.admin))[
        "key"
    ]
    with Client(service.url, key=key) as client:
        assert client.submit("echo").result(timeout=60) is None
        jobs = [
            job
            for job in client.submit_many([{"kind": "echo"}] * 3)
            if not isinstance(job, ServiceError)
        ]
        assert len(list(client.as_completed(jobs, timeout=60))) == 3
        (first, *_) = client.events(jobs[0].id)
        assert first.type == "snapshot"
    with Client(service.url) as client, pytest.raises(ServiceError) as refused:
        client.submit("echo")
    assert refused.value.code == "unauthenticated"


def test_a_folder_in_use_names_the_other_way(service: Protected) -> None:
    _, said = bide("keys", "list", "--data", str(service.data), code=1)
    assert "over HTTP" in said and "--url" in said


def test_the_first_key_outlives_the_command(tmp_path: Path) -> None:
    data = tmp_path / "data"
    key = create(data, "--scope", "admin", "--expires", "90d")
    out, _ = bide("keys", "list", "--data", str(data), "--json")
    (listed,) = map(json.loads, out.splitlines())
    assert listed["id"] == key.split("_")[1] and listed["expiresAt"] is not None
    secret = key.split("_")[2].encode()
    assert all(secret not in file.read_bytes() for file in data.rglob("*") if file.is_file())
    bide("keys", "revoke", listed["id"], "--data", str(data))
    assert bide("keys", "list", "--data", str(data), "--json")[0] == ""
    assert "there is no key" in bide("keys", "revoke", listed["id"], "--data", str(data), code=1)[1]


def test_an_open_service_listens_on_loopback_only(tmp_path: Path) -> None:
    for options, works in (
        (["--host", "0.0.0.0"], False),
        (["--host", "0.0.0.0", "--insecure"], True),
        (["--host", "0.0.0.0", "--auth", "keys"], True),
    ):
        service = ServiceProcess(
            tmp_path, TARGET, workers=1, options=options, shown=r"http://0\.0\.0\.0:(\d+), "
        )
        if not works:
            with pytest.raises(NotStarted, match="--auth keys"):
                service.start()
            continue
        service.start()
        service.stop()
    log = (tmp_path / "serve.log").read_text()
    assert re.search(r"no authentication: everyone .*--insecure", log)
    assert until(lambda: "callers need an API key" in log)
