"""1 GB with each upload protocol, compared with a bare application; and the memory of 20 such uploads at the same time."""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.service.servers import Site, bide, python_site
from bench.service.table import Line
from bench.uploads import sending

SIZE = 1024**3
AT_ONCE = 20
WAYS: dict[str, Callable[[int, Path, int], str]] = {
    "direct": sending.direct,
    "form": sending.form,
    "tus": sending.tus,
    "chunks": sending.chunks,
}


def source(folder: Path, size: int = SIZE) -> tuple[Path, str]:
    """A file of random bytes, and its checksum."""
    path, digest = folder / "source", hashlib.sha256()
    block = os.urandom(1024 * 1024)
    with path.open("wb") as file:
        for number in range(size // len(block)):
            data = number.to_bytes(8, "big") + block[8:]
            file.write(data)
            digest.update(data)
    return path, digest.hexdigest()


def speed(folder: Path, rounds: int) -> list[Line]:
    path, sha256 = source(folder)
    rates: dict[str, list[float]] = {name: [] for name in ("bare", *WAYS)}
    with (
        python_site(sys.executable, "bare", folder, str(folder), package="bench.uploads") as bare,
        bide(folder / "bide", workers=1, app="bench.uploads.app:app") as site,
    ):
        for _ in range(rounds):
            rates["bare"].append(_rate(lambda: sending.bare(bare.port, path, SIZE)))
            for name, send in WAYS.items():
                rates[name].append(_rate(lambda send=send: _checked(send, site, path, sha256)))  # type: ignore[misc]
                _remove_all(site)
    middle = {name: statistics.median(found) for name, found in rates.items()}
    base = middle["bare"]
    return [
        Line(
            f"1 GB, {name}, beside a bare application",
            middle[name] / base,
            *("≥", 0.6),
            detail=f"{middle[name]:.0f} MB/s beside {base:.0f}",
        )
        for name in WAYS
    ]


def _checked(send: Callable[[int, Path, int], str], site: Site, path: Path, sha256: str) -> None:
    if send(site.port, path, SIZE) != sha256:
        raise RuntimeError("the received bytes differ from the sent ones")


def _rate(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return SIZE / 1024**2 / (time.monotonic() - begin)


def _remove_all(site: Site) -> None:
    """Remove the files, because the disk is limited."""
    for path in Path(site.data, "blobs", "uploads").glob("*"):
        site.ask("DELETE", f"/uploads/{path.name}")


def memory(folder: Path, rounds: int) -> list[Line]:
    path, sha256 = source(folder)
    lines = []
    for name in ("direct", "tus", "chunks"):
        with bide(folder / name, workers=1, app="bench.uploads.app:app") as site:
            send = WAYS[name]
            small = folder / "small"
            small.write_bytes(bytes(1024 * 1024))
            send(site.port, small, 1024 * 1024)
            idle = site.memory()
            most, over = [idle], threading.Event()
            watch = threading.Thread(target=_watch, args=(site, most, over))
            watch.start()
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found = list(pool.map(lambda _, send=send: send(site.port, path, SIZE), range(AT_ONCE)))
            over.set()
            watch.join()
            if set(found) != {sha256}:
                raise RuntimeError("the received bytes differ from the sent ones")
            detail = f"{idle:.0f} MB idle, {max(most):.0f} at the most"
            lines.append(
                Line(
                    f"{AT_ONCE} × 1 GB at once, {name}: memory", max(most) - idle, "≤", 100, "MB", detail
                )
            )
            _remove_all(site)
    return lines


def _watch(site: Site, most: list[float], over: threading.Event) -> None:
    while not over.wait(0.05):
        most.append(site.memory())
