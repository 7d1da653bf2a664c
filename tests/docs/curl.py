"""As much of curl as the pages use, for machines that have none: -s, -i, -X, -H, -d and one address."""

from __future__ import annotations

import argparse
import http.client
import sys
from urllib.parse import urlsplit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-i", action="store_true")
    parser.add_argument("-X")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    given = parser.parse_args()
    parts = urlsplit(given.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = dict(line.split(": ", 1) for line in given.H)
    body = None if given.d is None else given.d.encode()
    connection.request(given.X or ("GET" if body is None else "POST"), path, body, headers)
    answer = connection.getresponse()
    if given.i:
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        lines += [f"{name}: {value}" for name, value in answer.getheaders()]
        sys.stdout.write("\n".join([*lines, "", ""]))
        sys.stdout.flush()
    sys.stdout.buffer.write(answer.read())
    connection.close()


if __name__ == "__main__":
    main()
