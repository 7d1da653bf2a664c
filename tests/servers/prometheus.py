"""A Prometheus on a free port that scrapes once per second."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.servers import ServerMissing
from tests.servers.broker import Broker
from tests.servers.ports import HOST

MISSING = "there is no Prometheus: apt-get install prometheus"


def promtool() -> str:
    """The program that checks rules and metrics."""
    found = shutil.which("promtool")
    if found is None:
        raise ServerMissing(MISSING)
    return found


class Prometheus(Broker):
    """`jobs`: the addresses to scrape, by job. `rules`: a file with rules."""

    name = "Prometheus"

    def __init__(
        self, jobs: Mapping[str, str], rules: Path | None = None, home: str | None = None
    ) -> None:
        self._jobs = jobs
        self._rules = rules
        super().__init__(home)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program = shutil.which("prometheus")
        if program is None:
            raise ServerMissing(MISSING)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [] if self._rules is None else [str(self._rules)],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [address]}]}
                for job, address in self._jobs.items()
            ],
        }
        # JSON is YAML, too.
        (self.folder / "prometheus.yml").write_text(json.dumps(config))
        return [
            program,
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address={HOST}:{self.port}",
            "--log.level=warn",
        ], {"GOMAXPROCS": "1"}

    def _answers(self) -> bool:
        return b" 200 " in self._exchange(b"GET /-/ready HTTP/1.0\r\n\r\n")[:20]

    def query(self, expression: str) -> list[Any]:
        """The samples of an instant query. Raise AssertionError if Prometheus does not understand it."""
        address = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(address, timeout=10) as response:
                found = json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        result: list[Any] = found["data"]["result"]
        return result

    def wait_for(self, expression: str, timeout: float = 60.0) -> list[Any]:
        """Query until there are samples."""
        end = time.monotonic() + timeout
        while not (found := self.query(expression)):
            if time.monotonic() > end:
                raise AssertionError(f"no data: {expression}")
            time.sleep(0.2)
        return found

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return json.load(response)
