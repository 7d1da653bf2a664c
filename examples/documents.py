"""Sends documents of different sizes to an API that bide does not know: documents.toml describes it.

    python documents.py documents.csv --url https://documents.example

`documents.csv` has a URL and a number of pages per line. The key is in DOCUMENTS_KEY. `python documents.py --demo small`
needs no key: it starts a simulated vendor. `--demo small medium` takes a little longer.

How to read it: `pages` returns the size of a document, which tells the client the expected duration and the timeout: one
minute for small documents (up to 10 pages), three for medium ones (up to 50), ten for large ones. So the client polls a
leaflet after seconds, and a book much later.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Literal, get_args

from bide import Client, JobFailed, WaitTimeout, pages
from bide.lab.vendor import Vendor

Size = Literal["small", "medium", "large"]
DESCRIPTION = str(Path(__file__).with_suffix(".toml"))
SIZES: tuple[Size, ...] = get_args(Size)


def parse(url: str, key: str | None, documents: list[tuple[str, int]]) -> None:
    """Sends the documents by size, small ones first. All sizes share the budget of one account."""
    for size in SIZES:
        group = [document for document, count in documents if pages(count) == size]
        if group:
            with Client(url, key, api=DESCRIPTION, size=size) as client:
                parse_all(client, size, group)


def parse_all(client: Client, size: Size, urls: list[str]) -> None:
    jobs = {}
    for url in urls:
        job = client.submit("parse", {"url": url}, idempotency_key=url.replace("/", "."))
        jobs[job.id] = (url, job)
    try:
        # `progress=True` shows bars in a terminal; you can pass a tqdm bar instead.
        for job in client.as_completed([job for _, job in jobs.values()], progress=True):
            try:
                print(f"{size}: {jobs[job.id][0]} is at {job.result()}")
            except JobFailed as error:
                print(f"{size}: {jobs[job.id][0]} failed: {error.error}")
    except WaitTimeout as error:  # the timeout of this size has passed
        print(f"{size}: {error}")


def read(path: Path) -> list[tuple[str, int]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [(url, int(count)) for url, count in csv.reader(file)]


def demo(sizes: list[Size]) -> None:
    """Runs against a simulated vendor whose documents take a second or two."""
    counts = {"small": (3, 1, 8), "medium": (40, 50), "large": (400,)}
    documents = [(f"https://paper.example/{n}-pages.pdf", n) for size in sizes for n in counts[size]]
    with Vendor(takes=lambda rng: rng.uniform(0.5, 2.5)) as vendor:
        parse(vendor.url, "any", documents)


def main() -> None:
    parser = argparse.ArgumentParser(description="Parse many documents.")
    parser.add_argument("documents", type=Path, nargs="?", help="a CSV file: URL, pages")
    parser.add_argument("--url", help="the URL of the API")
    parser.add_argument(
        "--demo", choices=SIZES, nargs="+", help="send documents of these sizes to a simulated vendor"
    )
    given = parser.parse_args()
    if given.demo:
        demo(given.demo)
    elif given.documents is None or given.url is None:
        parser.error("DOCUMENTS and --url are required, unless you use --demo small")
    else:
        parse(given.url, None, read(given.documents))


if __name__ == "__main__":
    main()
