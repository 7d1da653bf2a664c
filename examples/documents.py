"""Documents of all sizes through an API that bide has never heard of: documents.toml says how to speak to it.

    python documents.py documents.csv --url https://documents.example

`documents.csv` has an address and a number of pages a line. The key is in DOCUMENTS_KEY. `python documents.py --demo
small` shows it without one, against a vendor that is started here; `--demo small medium` takes a little longer.

How to read it: the size says how long a document will take, about, and how long to wait for it: a minute for small ones,
three for medium ones, ten for large ones. So a leaflet is asked about after seconds, and a book is left in peace.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Literal

from bide import Client, JobFailed, WaitTimeout
from bide.lab.vendor import Vendor

Size = Literal["small", "medium", "large"]
DESCRIPTION = str(Path(__file__).with_suffix(".toml"))
PAGES: dict[Size, int] = {"small": 10, "medium": 100, "large": 10**9}  # a size has fewer than this


def parse(url: str, key: str | None, documents: list[tuple[str, int]]) -> None:
    """One size after the other, the small ones first: they all share one account's budget."""
    left = sorted(documents, key=lambda document: document[1])
    for size, most in PAGES.items():
        group = [address for address, pages in left if pages < most]
        left = left[len(group) :]
        if group:
            with Client(url, key, api=DESCRIPTION, size=size) as client:
                parse_all(client, size, group)


def parse_all(client: Client, size: Size, addresses: list[str]) -> None:
    jobs = {}
    for address in addresses:
        job = client.submit("parse", {"url": address}, idempotency_key=address.replace("/", "."))
        jobs[job.id] = (address, job)
    try:
        # `progress=True` shows bars in a terminal; a tqdm bar can be given instead.
        for job in client.as_completed([job for _, job in jobs.values()], progress=True):
            try:
                print(f"{size}: {jobs[job.id][0]} is at {job.result()}")
            except JobFailed as error:
                print(f"{size}: {jobs[job.id][0]} failed: {error.error}")
    except WaitTimeout as error:  # longer than documents of this size take
        print(f"{size}: {error}")


def read(path: Path) -> list[tuple[str, int]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [(address, int(pages)) for address, pages in csv.reader(file)]


def demo(sizes: list[Size]) -> None:
    """Against a vendor of our own, with documents that take a second or two."""
    pages = {"small": (3, 1, 8), "medium": (40, 60), "large": (400,)}
    documents = [(f"https://paper.example/{n}-pages.pdf", n) for size in sizes for n in pages[size]]
    with Vendor(takes=lambda rng: rng.uniform(0.5, 2.5)) as vendor:
        parse(vendor.url, "any", documents)


def main() -> None:
    parser = argparse.ArgumentParser(description="Parse many documents.")
    parser.add_argument("documents", type=Path, nargs="?", help="a CSV file: address, pages")
    parser.add_argument("--url", help="the address of the API")
    parser.add_argument(
        "--demo", choices=PAGES, nargs="+", help="such documents, to a vendor of our own"
    )
    given = parser.parse_args()
    if given.demo:
        demo(given.demo)
    elif given.documents is None or given.url is None:
        parser.error("which documents, and where is the API? Or --demo small")
    else:
        parse(given.url, None, read(given.documents))


if __name__ == "__main__":
    main()
