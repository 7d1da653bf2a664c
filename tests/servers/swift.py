"""OpenStack Swift with its S3 API, which verifies signatures as S3 does: five processes on free ports."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.servers import ServerMissing, processes
from tests.servers.ports import HOST, free_ports

KEY, SECRET = "bide:tester", "testing"
REGION = "us-east-1"
BACKENDS = ("account", "container", "object")
PLAIN = ("catch_errors", "gatekeeper", "healthcheck", "listing_formats", "bulk", "copy", "slo", "dlo")
PIPELINE = "catch_errors gatekeeper healthcheck cache listing_formats bulk s3api tempauth copy slo dlo proxy-server"
HASH = """[swift-hash]
swift_hash_path_suffix = bide
swift_hash_path_prefix = bide
[storage-policy:0]
name = Policy-0
default = yes
[swift-constraints]
"""
COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
disable_fallocate = true
log_address = /dev/null
log_level = WARNING
eventlet_debug = false
fallocate_reserve = 0
"""
BACKEND = """[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
PROXY = """[pipeline:main]
pipeline = {pipeline}
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
[filter:tempauth]
use = egg:swift#tempauth
user_bide_tester = testing .admin
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached}
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
"""
RINGS = """
import json, sys
from swift.common.ring import RingBuilder
for name, port in json.loads(sys.argv[1]).items():
    builder = RingBuilder(4, 1, 1)
    at = {"ip": "127.0.0.1", "port": port, "replication_ip": "127.0.0.1", "replication_port": port}
    builder.add_dev({"region": 1, "zone": 1, "device": "d1", "weight": 1, "meta": "", **at})
    builder.rebalance()
    builder.get_ring().save(name + ".ring.gz")
"""


class Swift:
    """One server and its objects."""

    def __init__(self, home: str | None = None) -> None:
        missing = [
            p for p in ("swift-ring-builder", "swift-proxy-server", "memcached") if not shutil.which(p)
        ]
        if missing:
            raise ServerMissing(
                f"there is no {', '.join(missing)}: "
                "apt-get install swift-proxy swift-account swift-container swift-object memcached"
            )
        self.folder = Path(tempfile.mkdtemp(prefix="bide-swift-", dir=home))
        self._ports = dict(zip((*BACKENDS, "proxy", "memcached"), free_ports(5), strict=True))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._buckets: set[str] = set()
        try:
            self._set_up()
            self.start()
        except BaseException:
            self.end()
            raise

    @property
    def port(self) -> int:
        return self._ports["proxy"]

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def environment(self) -> dict[str, str]:
        """The credential, in the variables that every S3 client reads."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def url(self, bucket: str, prefix: str = "") -> str:
        """For `--blobs`."""
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region={REGION}"

    def client(self) -> Any:
        """A client of boto3; close it after use."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(signature_version="s3v4", request_checksum_calculation="when_required"),
        )

    def make_bucket(self, name: str) -> None:
        """If this object has not made it yet."""
        if name not in self._buckets:
            client = self.client()
            client.create_bucket(Bucket=name)
            client.close()
            self._buckets.add(name)

    def _set_up(self) -> None:
        (self.folder / "devices" / "d1").mkdir(parents=True)
        (self.folder / "swift.conf").write_text(HASH)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        for name in (*BACKENDS, "proxy"):
            own = (
                PROXY.format(pipeline=PIPELINE, memcached=self._ports["memcached"])
                + "".join(f"[filter:{plain}]\nuse = egg:swift#{plain}\n" for plain in PLAIN)
                if name == "proxy"
                else BACKEND.format(kind=name)
            )
            text = COMMON.format(port=self._ports[name], user=user, folder=self.folder) + own
            (self.folder / f"{name}.conf").write_text(text)
        self._make_rings()

    def _make_rings(self) -> None:
        """In one process, because `swift-ring-builder` would be nine, and each takes long to start."""
        python = Path(shutil.which("swift-ring-builder") or "").read_text().splitlines()[0][2:].split()
        devices = {name: self._ports[name] for name in BACKENDS}
        done = subprocess.run(
            [*python, "-c", RINGS, json.dumps(devices)],
            cwd=self.folder,
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServerMissing(
                f"Swift's rings cannot be made: {done.stderr.decode(errors='replace')[-2000:]}"
            )

    def start(self) -> None:
        """Returns when the server answers S3 requests."""
        memory = ["memcached", "-l", HOST, "-p", str(self._ports["memcached"]), "-m", "16"]
        if os.geteuid() == 0:
            memory += ["-u", "root"]
        commands = [memory]
        commands += [[f"swift-{name}-server", f"{name}.conf"] for name in (*BACKENDS, "proxy")]
        with (self.folder / "log").open("ab") as log:
            self._processes += [
                subprocess.Popen(
                    command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                for command in commands
            ]
        end = time.monotonic() + 60
        while not all(self._answers(name) for name in (*BACKENDS, "proxy")):
            if any(p.poll() is not None for p in self._processes) or time.monotonic() > end:
                raise ServerMissing(f"Swift did not start: {self.log[-2000:]}")
            time.sleep(0.05)

    def _answers(self, name: str) -> bool:
        connection = http.client.HTTPConnection(HOST, self._ports[name], timeout=5)
        try:
            connection.request("OPTIONS" if name != "proxy" else "GET", "/healthcheck")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """Ends all its processes with SIGKILL; the objects stay."""
        processes.kill(process.pid for process in self._processes)
        for process in self._processes:
            process.wait()
        self._processes = []

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
