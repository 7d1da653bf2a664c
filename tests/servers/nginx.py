"""An nginx on a free port, with the configuration of deploy/."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import ServerMissing
from tests.servers.broker import Broker
from tests.servers.ports import HOST

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
USER, PASSWORD = "team", "sesame"
# What the package of a distribution has in /etc/nginx/nginx.conf, in a folder of the test.
_MAIN = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
user root;  # as root, the workers would be another user, which may not read the folder
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/bide.conf;
}}
"""


class Nginx(Broker):
    """`replicas`: the ports of the two replicas. `without`: a directive that is left out of the configuration. `prefix`: a
    path that nginx removes, as docs/howto/deploy.md describes.
    """

    name = "nginx"

    def __init__(
        self,
        replicas: tuple[int, int],
        *,
        without: str | None = None,
        prefix: str = "",
        home: str | None = None,
    ) -> None:
        self._replicas = replicas
        self._without = without
        self._prefix = prefix
        super().__init__(home)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}{self._prefix}"

    @property
    def url_with_password(self) -> str:
        return f"http://{USER}:{PASSWORD}@{HOST}:{self.port}{self._prefix}"

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if program is None:
            raise ServerMissing("there is no nginx: apt-get install nginx-light")
        main = self.folder / "nginx.conf"
        if not main.exists():
            self._write(main)
        return [
            program,
            "-c",
            str(main),
            "-p",
            str(self.folder),
            "-e",
            str(self.folder / "error.log"),
        ], {}

    def _write(self, main: Path) -> None:
        text = CONFIGURATION.read_text()
        changes = {
            "listen 80;": f"listen {HOST}:{self.port};",
            "127.0.0.1:8642": f"{HOST}:{self._replicas[0]}",
            "127.0.0.1:8643": f"{HOST}:{self._replicas[1]}",
            "/etc/nginx/bide.htpasswd": str(self.folder / "htpasswd"),
        }
        if self._prefix:
            header = 'proxy_set_header Authorization "";'
            forwarded = {
                "Prefix": self._prefix,
                "Proto": "$scheme",
                "Host": "$http_host",
            }
            lines = [
                f"proxy_set_header X-Forwarded-{name} {value};" for name, value in forwarded.items()
            ]
            changes |= {
                header: "\n".join([header, *lines]),
                "location / {\n        proxy_pass http://bide;": f"location {self._prefix}/ {{\n"
                "        proxy_pass http://bide/;",
            }
        for shipped, here in changes.items():
            assert shipped in text, shipped
            text = text.replace(shipped, here)
        if self._without is not None:
            text, count = re.subn(rf"^ *{self._without} .*;\n", "", text, flags=re.MULTILINE)
            assert count == 1, self._without
        (self.folder / "bide.conf").write_text(text)
        (self.folder / "htpasswd").write_text(f"{USER}:{{PLAIN}}{PASSWORD}\n")
        main.write_text(_MAIN.format(folder=self.folder))

    def _answers(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex((HOST, self.port)) == 0
