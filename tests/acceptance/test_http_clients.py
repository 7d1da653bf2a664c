"""HTTP clients that offer HTTP/2 on a plain connection (`Upgrade: h2c`): curl, and Java's HttpClient by default."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.service import ServiceProcess, serving_tasks

TASKS = """
from bide import App
app = App()

@app.job()
def count(text: str) -> int:
    return len(text)
"""

JAVA = """
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

public class Submit {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int size : new int[] {10, 300000}) {
            String body = "{\\"kind\\": \\"count\\", \\"input\\": {\\"text\\": \\"" + "x".repeat(size) + "\\"}}";
            HttpRequest request = HttpRequest.newBuilder(URI.create(args[0] + "/jobs"))
                .header("Content-Type", "application/json").header("Prefer", "wait=30")
                .POST(BodyPublishers.ofString(body)).build();
            var answer = client.send(request, BodyHandlers.ofString());
            System.out.println(answer.version() + " " + answer.statusCode() + " " + answer.body());
        }
    }
}
"""


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        reason = f"{program} is not installed"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with serving_tasks(tmp_path_factory.mktemp("clients"), TASKS, workers=1) as service:
        yield service


@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_curl(service: ServiceProcess, tmp_path: Path, size: int, chunked: bool) -> None:
    """A body that is larger than a packet, and one that comes with its head; both also in chunks."""
    body = tmp_path / "body"
    body.write_text(json.dumps({"kind": "count", "input": {"text": "x" * size}}))
    command = [need("curl"), "--http2", "-sS", "-w", "%{http_version} %{http_code}", "-o", "-"]
    command += ["-H", "Content-Type: application/json", "-H", "Prefer: wait=30"]
    command += ["-H", "Transfer-Encoding: chunked"] if chunked else []
    done = subprocess.run(
        [*command, "--data-binary", f"@{body}", f"{service.url}/jobs"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.endswith("}1.1 200"), done.stdout
    assert json.loads(done.stdout.removesuffix("1.1 200"))["result"] == size


def test_java(service: ServiceProcess, tmp_path: Path) -> None:
    need("javac")
    source = tmp_path / "Submit.java"
    source.write_text(JAVA)
    done = subprocess.run(
        [need("java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1", str(source), service.url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert [(version, status) for version, status, _ in answers] == [("HTTP_1_1", "200")] * 2
    assert [json.loads(body)["result"] for _, _, body in answers] == [10, 300_000]
