"""A running service, scraped by a real Prometheus: its metrics, the dashboard and the queries of deploy/, and its log."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import started
from tests.docs.pages import ROOT
from tests.servers.ports import HOST
from tests.servers.prometheus import Prometheus, promtool
from tests.servers.service import ServiceProcess
from tests.waiting import until

DEPLOY = ROOT / "deploy"
VARIABLES = {"$queue": ".*", "$kind": ".*", "$__rate_interval": "30s"}


@dataclass
class Site:
    """A service that has run some jobs, the file of a client's metrics, and the Prometheus that scrapes both."""

    service: ServiceProcess
    prometheus: Prometheus
    metrics: Path  # of the client
    printed: str  # by the client, on stderr

    def run_jobs(self) -> None:
        for body in JOBS:
            self.service.ask("POST", "/jobs", body, {"Prefer": "wait=30"})


# Panels of what does not happen here. Their descriptions say when they have no data.
EMPTY = {
    "Lost workers in 15 minutes",
    "Refused requests per second",
    "Throttled tenants: refused requests per second",
    "Delay of the service",
    "Budget, by API",  # the client waits for nothing any more, so nothing is needed
}
SECRET = "sesame-4711"
JOBS: list[dict[str, Any]] = [
    *({"kind": "transcode", "input": {"source": "s", "seconds": 0.05}} for _ in range(4)),
    {"kind": "transcode", "input": {"source": "s", "fail": True}},
    {"kind": "leak", "input": {"token": SECRET, "pin": 471100}},
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("observed")
    options = ["--log-format", "json", "--log-level", "WARNING"]
    service = ServiceProcess(folder, "tests.apps.dashboard:app", workers=1, options=options)
    metrics = folder / "client.prom"
    service.start()
    try:
        job_id = service.ask("POST", "/jobs", JOBS[0])["jobId"]
        waited = _wait(service, job_id, metrics)
        with _file_server(metrics) as node:
            jobs = {"bide": f"{HOST}:{service.port}", "node": node}
            rules = DEPLOY / "prometheus" / "alerts.yml"
            for prometheus in started(lambda: Prometheus(jobs, rules)):
                found = Site(service, prometheus, metrics, waited)
                prometheus.wait_for('up{job="bide"} == 1')
                found.run_jobs()
                yield found
    finally:
        service.stop()


def _wait(service: ServiceProcess, job_id: str, metrics: Path) -> str:
    command = [sys.executable, "-m", "bide", "wait", job_id, "--url", service.url, "--limit", "600/1m"]
    command += ["--metrics", str(metrics), "--log-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


class _file_server:
    """Serves a file to Prometheus, as the textfile collector of node_exporter does. Returns its address."""

    def __init__(self, path: Path) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(path.read_bytes())

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer((HOST, 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return f"{HOST}:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _panels() -> list[dict[str, Any]]:
    board = json.loads((DEPLOY / "grafana" / "bide.json").read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def test_every_query_of_the_dashboard_has_data(site: Site) -> None:
    board = json.loads((DEPLOY / "grafana" / "bide.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in _panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            if panel["title"] in EMPTY:
                site.prometheus.query(expression)  # it is understood
                assert "No data" in panel["description"]
            else:
                site.prometheus.wait_for(expression)
    for variable in board["templating"]["list"][1:]:
        metric, label = variable["query"]["query"].removeprefix("label_values(").rstrip(")").split(", ")
        assert site.prometheus.query(f"count by ({label}) ({metric})"), variable


def test_promtool_accepts_the_metrics(site: Site) -> None:
    import urllib.request

    with urllib.request.urlopen(f"{site.service.url}/metrics", timeout=10) as response:
        texts = [response.read(), site.metrics.read_bytes()]
    for text in texts:
        done = subprocess.run(
            [promtool(), "check", "metrics"], input=text, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_evaluates_the_alerts(site: Site) -> None:
    def evaluated() -> list[Any] | None:
        (group,) = site.prometheus.get("/api/v1/rules")["data"]["groups"]
        rules: list[Any] = group["rules"]
        return rules if all(rule["health"] != "unknown" for rule in rules) else None

    rules = until(evaluated)
    assert {rule["name"]: rule["lastError"] for rule in rules if rule["health"] != "ok"} == {}


def test_keda_finds_one_number(site: Site) -> None:
    (trigger,) = yaml.safe_load((DEPLOY / "keda.yaml").read_text())["spec"]["triggers"]
    (sample,) = site.prometheus.wait_for(trigger["metadata"]["query"])
    assert sample["value"][1] == "0"  # nothing waits


def test_the_client_writes_its_metrics_and_its_notes(site: Site) -> None:
    lines = site.metrics.read_text().splitlines()
    (requests,) = [line for line in lines if line.startswith("bide_client_requests_total{")]
    assert requests.startswith('bide_client_requests_total{api="bide"} ')
    assert float(requests.rpartition(" ")[2]) >= 1
    notes = [json.loads(line) for line in site.printed.splitlines()]
    assert any("1 done, 0 failed" in note["message"] for note in notes)


def test_every_line_of_the_log_is_json(site: Site) -> None:
    def lines() -> list[dict[str, Any]] | None:
        text = (site.service.folder / "serve.log").read_text()
        found = [json.loads(line) for line in text.splitlines()]
        return found if any(line.get("logger") == "leak" for line in found) else None

    found = until(lines)
    assert found[0]["message"].startswith("bide serves")
    failed = [line for line in found if line.get("kind") == "transcode"]
    assert failed and all("SOURCE_UNREACHABLE" in line["message"] for line in failed)
    assert [line["attempt"] for line in failed] == [1, 2, 3, 4]
    assert {line["tenant"] for line in failed} == {"-"}
    job = site.service.ask("GET", f"/jobs/{failed[0]['jobId']}")
    assert job["kind"] == "transcode" and job["traceId"] == failed[0]["traceId"]
    of_handler = next(line for line in found if line.get("logger") == "leak")
    assert (of_handler["kind"], of_handler["level"]) == ("leak", "warning")
    assert of_handler["jobId"] and of_handler["traceId"]
    assert SECRET not in json.dumps(found) and "471100" not in json.dumps(found)
