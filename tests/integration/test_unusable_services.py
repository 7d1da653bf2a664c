"""What no retry mends is reported at once, with the reason: a bad certificate, a port that does not speak HTTP or TLS."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bide.cli import root
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.errors import UnusableService
from bide.pipeline.run.context import RunHalted, explained
from tests.integration.third_party import KEY, ThirdParty

BANNER = b"SSH-2.0-OpenSSH_9.6\r\n"
ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
DONE = b'{"id": "gen-1", "status": "COMPLETED"}'
LIVE = b'{"id": "gen-1", "status": "PROCESSING"}'


def http(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@contextmanager
def port(*answers: bytes) -> Iterator[tuple[str, Callable[[], int]]]:
    """Answers each connection with the next of these, the last one stays; its address, and how many came."""
    came = 0
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        nonlocal came
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            answer = answers[min(came, len(answers) - 1)]
            came += 1
            with connection:
                connection.settimeout(5)
                try:
                    connection.recv(65536)
                    connection.sendall(answer)
                except OSError:
                    pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", lambda: came
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SYNC_API_KEY", KEY)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Signed by itself, for another name."""
    folder = tmp_path_factory.mktemp("certificate")
    made, key = folder / "cert.pem", folder / "key.pem"
    options = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=api.invalid"
    command = f"openssl req -x509 {options} -keyout {key} -out {made}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return made, key


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[ThirdParty]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with ThirdParty(context=context) as server:
        yield server


def bide(*args: str) -> Result:
    return CliRunner().invoke(root, list(args), prog_name="bide")


def reports(url: str, code: str, *words: str) -> None:
    """Each command ends by itself, with exit code 1 and the reason."""
    Path("film.mp4").write_bytes(b"the film")
    for command in (
        ("wait", "gen-1", "gen-2", "--api", "sync.so", "--url", url),
        ("wait", "gen-1", "--api", "sync.so", "--url", url, "--processes", "2"),
        ("wait", "01JC3X8M0V5T6Q7R8S9A0B1C2D", "--url", url),
        ("submit", "-i", "{}", "--api", "sync.so", "--url", url),
        ("submit", "k", "--file", "film.mp4", "--url", url),
        ("status", "gen-1", "--api", "sync.so", "--url", url),
    ):
        result = bide(*command)
        said = result.stdout + result.stderr
        assert result.exit_code == 1, (command, said)
        assert all(word in said for word in words), (command, said)
        if command[0] == "wait":
            assert code in said


def test_a_certificate_that_is_not_trusted_is_reported(secure: ThirdParty) -> None:
    reports(secure.url, "certificate-not-trusted", "self-signed certificate", "SSL_CERT_FILE")
    assert secure.asked == []


def test_a_certificate_of_another_name_is_reported(
    secure: ThirdParty, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    result = bide("wait", "gen-1", "--api", "sync.so", "--url", secure.url)
    assert result.exit_code == 1 and "certificate is not valid for '127.0.0.1'" in result.stdout


def test_a_port_that_does_not_speak_http_is_reported() -> None:
    with port(BANNER) as (at, came):
        reports(f"http://{at}", "not-http", "does not speak HTTP", "SSH-2.0-OpenSSH_9.6", "port")
        assert came() < 20


def test_tls_on_a_port_that_does_not_speak_it_is_reported() -> None:
    with port(http(b"{}")) as (at, _):
        reports(f"https://{at}", "tls-failed", "does not speak TLS", "http://")


def test_plain_http_on_a_port_that_speaks_tls_is_reported() -> None:
    with port(ALERT) as (at, _):
        reports(f"http://{at}", "not-http", "speaks TLS", "https://")


def test_a_port_that_closes_every_connection_does_not_hold_up_an_upload_for_ten_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bide.client.http.retrying.Retrying._backoff", lambda *_: 0.01)
    Path("film.mp4").write_bytes(b"the film")
    with port(b"") as (at, came):
        result = bide("submit", "k", "--file", "film.mp4", "--url", f"http://{at}")
        assert result.exit_code == 1 and "no answer from" in result.stderr
        assert came() == 6


async def test_after_an_answer_the_same_failure_is_retried() -> None:
    """A proxy that is restarted may say anything for a moment."""
    with port(http(LIVE), BANNER, ALERT, http(LIVE), http(DONE)) as (at, _):
        async with AsyncClient(f"http://{at}", KEY, api="sync.so", timing=Timing(100.0)) as client:
            job = client.job("gen-1")
            await job.result(timeout=20)
        assert job.latest is not None and job.latest.status == "DONE"


async def test_jobs_at_another_address_go_on() -> None:
    with port(BANNER) as (bad, _), port(http(DONE)) as (good, _):
        async with AsyncClient(f"http://{bad}", KEY, api="sync.so", timing=Timing(100.0)) as client:
            jobs = [client.job("gen-1"), client.job(f"http://{good}/v2/generate/gen-1")]
            await client.wait_all(jobs, timeout=20)
            with pytest.raises(UnusableService, match="does not speak HTTP"):
                await jobs[0].result(timeout=5)
            assert jobs[1].latest is not None and jobs[1].latest.status == "DONE"


async def test_a_token_endpoint_that_cannot_be_used_ends_the_wait(tmp_path: Path) -> None:
    with port(BANNER) as (bad, _):
        (tmp_path / "mine.toml").write_text(
            f'name = "mine"\nurl = "http://127.0.0.1:9"\n[auth]\nkind = "oauth2"\ntoken_url = "http://{bad}/t"\n'
            'client_id = "me"\n[ask]\npath = "/t/{id}"\n[read]\nstatus = "s"\ndone = ["ok"]\n'
        )
        async with AsyncClient(None, KEY, api=str(tmp_path / "mine.toml")) as client:
            with pytest.raises(UnusableService, match="does not speak HTTP"):
                await client.job("1").result(timeout=10)


def test_a_pipeline_halts() -> None:
    assert isinstance(explained(UnusableService("not-http", "it does not speak HTTP")), RunHalted)
