"""`bide serve --auth keys` and `bide keys`, as processes."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bide import Client
from bide.core.errors import ServiceError
from tests.servers.service import NotStarted, ServiceProcess
from tests.servers.warm import warm
from tests.waiting import until

TARGET = "tests.apps.echo:app"


def bide(
    *arguments: str, code: int = 0, environment: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Run a command; return its output and its messages."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("BIDE_")}
    done = subprocess.run(
        [warm().program, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**clean, **(environment or {})},
        timeout=60,
    )
    assert done.returncode == code, (arguments, done)
    return done.stdout, done.stderr


def create(data: Path, *arguments: str) -> str:
    return bide("keys", "create", "--data", str(data), *arguments)[0].strip()


class Protected(ServiceProcess):
    admin = ""

    def bide(self, *arguments: str, key: str, code: int = 0) -> str:
        out, said = bide(*arguments, "--url", self.url, code=code, environment={"BIDE_KEY": key})
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
    # The first key, which the fixture has created in the data folder, is in the audit log.
    lines = {"Authorization": f"Bearer {service.admin}"}
    found = service.ask("GET", "/audit?operation=createKey", headers=lines)["entries"][-1]
    assert found["subject"].startswith("cli:") and found["address"] is None
    assert found["resource"] == f"/keys/{service.admin.split('_')[1]}"


def test_the_client_sends_its_key_with_every_request(service: Protected, tmp_path: Path) -> None:
    """Submission, batch, event stream, polls, files, uploads and downloads."""
    key = json.loads(service.bide("keys", "create", "--tenant", "client", "--json", key=service.admin))[
        "key"
    ]
    file = tmp_path / "a.bin"
    file.write_bytes(bytes(20_000_000))  # is sent resumable
    with Client(service.url, key=key) as client:
        assert client.submit("echo").result(timeout=60) is None
        measured = client.submit("measure", files={"source": file})
        assert measured.result(timeout=60) == 20_000_000
        done = client.submit("encode", {"source": "x"})
        done.result(timeout=60)
        path = done.download("a.txt", tmp_path)
        assert path.read_bytes() == b"0123456789"
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


def test_commands_send_their_key(service: Protected, tmp_path: Path) -> None:
    key = json.loads(
        service.bide("keys", "create", "--tenant", "commands", "--json", key=service.admin)
    )["key"]
    job = json.loads(service.bide("submit", "echo", "--json", key=key))["jobId"]
    assert service.bide("wait", job, "--processes", "2", "--json", key=key)
    assert service.bide("wait", f"{service.url}/jobs/{job}", "--json", key=key)
    assert service.bide("events", job, "--json", key=key)
    service.bide("log", job, key=key)
    assert service.bide("retry", job, key=key, code=1)  # it is DONE
    refused = service.bide("queue", "list", key=key, code=1)
    assert "403 forbidden" in refused


def test_a_stored_key_goes_to_its_service_only(service: Protected, tmp_path: Path) -> None:
    config = {"XDG_CONFIG_HOME": str(tmp_path)}
    file, stored = tmp_path / "operator.key", tmp_path / "bide" / "keys.json"
    file.write_text(service.admin + "\n")
    login = ("login", "--url", service.url, "--key-file", str(file))
    _, said = bide(*login, environment=config)
    assert service.admin not in said and str(stored) in said
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    bide("keys", "list", "--url", f"{service.url}/", environment=config)
    # A variable counts more, and another address of the same service is another service.
    wrong = bide("list", "--url", service.url, code=1, environment={**config, "BIDE_KEY": "wrong"})[1]
    assert "401 unauthenticated" in wrong
    elsewhere = service.url.replace("127.0.0.1", "localhost")
    assert "401 unauthenticated" in bide("list", "--url", elsewhere, code=1, environment=config)[1]
    stored.chmod(0o644)
    assert "chmod 600" in bide("list", "--url", service.url, code=1, environment=config)[1]
    stored.chmod(0o600)
    bide("logout", "--url", service.url, environment=config)
    assert "401 unauthenticated" in bide("list", "--url", service.url, code=1, environment=config)[1]
    assert "no key" in bide("logout", "--url", service.url, code=1, environment=config)[1]
    file.write_text("bide_4t9hq2m0xk1c_wrong")
    assert "does not accept this key" in bide(*login, code=1, environment=config)[1]
    assert "--key-file" in bide("login", "--url", service.url, code=2, environment=config)[1]


def test_doctor_says_who_may_use_the_service(service: Protected, tmp_path: Path) -> None:
    def check(code: int = 0, *arguments: str, **environment: str) -> dict[str, str]:
        out, _ = bide(
            "doctor", "--json", "--data", str(tmp_path), *arguments, code=code, environment=environment
        )
        return {found["check"]: found["detail"] for found in map(json.loads, out.splitlines())}

    found = check(0, "--url", service.url)
    assert found["service access"] == "callers need a credential"
    assert "scope admin" in found["service"]
    found = check(0, "--url", service.url, BIDE_KEY=service.admin)
    assert found["service"] == f"{service.url} is ready"
    assert "no authentication" in found["access"]
    assert "need an API key" in check(BIDE_HOST="0.0.0.0", BIDE_AUTH="keys")["access"]
    assert "--auth keys" in check(1, BIDE_HOST="0.0.0.0")["access"]
    assert "--insecure" in check(BIDE_HOST="0.0.0.0", BIDE_INSECURE="1")["access"]


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


def test_tls_and_handlers_are_left_to_the_operator(service: Protected) -> None:
    """The service speaks no TLS, and one process runs the jobs of all tenants."""
    with (
        socket.create_connection(("127.0.0.1", service.port), timeout=30) as plain,
        pytest.raises(ssl.SSLError),
    ):
        ssl.create_default_context().wrap_socket(plain, server_hostname="127.0.0.1")
    workers = set()
    for tenant in ("first", "second"):
        made = service.bide("keys", "create", "--tenant", tenant, "--json", key=service.admin)
        lines = {"Authorization": f"Bearer {json.loads(made)['key']}"}
        job = service.ask("POST", "/jobs", {"kind": "echo"}, headers=lines)["jobId"]
        until(lambda: service.ask("GET", f"/jobs/{job}", headers=lines)["status"] == "DONE")  # noqa: B023
        events = service.ask("GET", "/events", headers=lines)["events"]
        workers |= {event["job"]["worker"] for event in events if "worker" in event["job"]}
    assert len(workers) == 1
