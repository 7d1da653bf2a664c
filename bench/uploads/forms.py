"""`python -m bench.uploads.forms`: form parsing compared with python-multipart (`pip install python-multipart`)."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from bide.server.uploads.multipart import Multipart

SIZE = 512 * 1024 * 1024
PIECE = 256 * 1024
BOUNDARY = b"----FormBoundary7MA4YWxkTrZu0gW"
HEAD = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' % BOUNDARY
END = b"\r\n--%b--\r\n" % BOUNDARY


def ours(pieces: list[bytes]) -> int:
    parser, size = Multipart(BOUNDARY), 0
    for piece in pieces:
        for event in parser.feed(piece):
            if isinstance(event, memoryview):
                size += len(event)
    parser.close()
    return size


def theirs(pieces: list[bytes]) -> int:
    from python_multipart.multipart import MultipartParser

    size = 0

    def data(buffer: bytes, start: int, end: int) -> None:
        nonlocal size
        size += len(buffer[start:end])

    parser = MultipartParser(BOUNDARY, {"on_part_data": data})
    for piece in pieces:
        parser.write(piece)
    parser.finalize()
    return size


def main() -> None:
    block = os.urandom(PIECE)
    count = SIZE // PIECE
    pieces = [HEAD, *[block] * count, END]
    ways: dict[str, Callable[[list[bytes]], int]] = {"ours": ours, "python-multipart": theirs}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):
        for name, read in ways.items():
            begin = time.process_time()
            assert read(pieces) == SIZE
            rates[name].append(SIZE / 1024**2 / (time.process_time() - begin))
    for name, found in rates.items():
        print(f"{name}: {statistics.median(found):.0f} MB per CPU second")


if __name__ == "__main__":
    main()
