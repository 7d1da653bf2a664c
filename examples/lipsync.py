"""Sends a hundred videos to a lip-sync API with one request budget, and resumes after crashes.

    python lipsync.py videos.txt --out films

`videos.txt` has two URLs per line: a video, and the sound for its lips. The key is in SYNC_API_KEY. `python lipsync.py
--demo 12` needs no key: it starts a simulated vendor.

How to read it: `films` below does the work. To resume after a crash, start it again: idempotency keys prevent that a video
is sent and paid for twice, and the ledger contains the jobs that are not finished.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from bide import Client, JobFailed
from bide.lab.scenario import Rules
from bide.lab.vendor import Vendor


def films(client: Client, videos: list[tuple[str, str]], out: Path) -> int:
    """Submits the videos, waits, downloads the films; returns the number of failures."""
    names = {}
    for video, sound in videos:
        # The client keeps to the limit itself: submissions, polls and downloads share one budget.
        job = client.submit("lipsync", order(video, sound), idempotency_key=key(video, sound))
        names[job.id] = Path(video).stem
    failed = 0
    # All jobs that were submitted and not acknowledged, by this run or an interrupted one.
    for job in client.as_completed(client.unacknowledged(), progress=True):
        try:
            job.result()
            job.download("result", out / f"{names.get(job.id, job.id)}.mp4")
        except JobFailed as error:  # the job failed; the client retries failed polls itself
            print(f"{names.get(job.id, job.id)}: {error.error.message if error.error else error.status}")
            failed += 1
        client.acknowledge(job)
    return failed


def order(video: str, sound: str) -> dict[str, object]:
    """Returns the input of sync.so."""
    return {
        "model": "lipsync-2",
        "input": [{"type": "video", "url": video}, {"type": "audio", "url": sound}],
    }


def key(video: str, sound: str) -> str:
    """Returns the same key for the same video and sound."""
    return hashlib.sha256(f"{video} {sound}".encode()).hexdigest()[:32]


def read(path: Path) -> list[tuple[str, str]]:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [(video, sound) for video, sound in lines]


def demo(count: int, out: Path, ledger: Path) -> None:
    """Runs against a simulated vendor: one to four seconds per video, 20 requests per second."""
    videos = [(f"https://video.example/{n}.mp4", f"https://video.example/{n}.wav") for n in range(count)]
    limit = Rules(requests=20, per=1.0, burst=5)
    with (
        Vendor(limit, takes=lambda rng: rng.uniform(1, 4), fails=0.1) as vendor,
        Client(vendor.url, "any", api="sync.so", limit="20/1s", ledger=ledger) as client,
    ):
        failed = films(client, videos, out)
        print(f"{count - failed} films, {failed} failed, {client.requests} requests", end=", ")
        print(f"{vendor.refused} of them refused")


def main() -> None:
    parser = argparse.ArgumentParser(description="Lip sync for many videos.")
    parser.add_argument(
        "videos", type=Path, nargs="?", help="a file with two URLs per line: video and sound"
    )
    parser.add_argument("--out", type=Path, default=Path("films"))
    parser.add_argument("--ledger", type=Path, default=Path("films.ledger"))
    parser.add_argument("--limit", default="60/1m", help="the request limit of your account")
    parser.add_argument(
        "--demo", type=int, metavar="COUNT", help="send COUNT videos to a simulated vendor"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.demo:
        demo(given.demo, given.out, given.ledger)
    elif given.videos is None:
        parser.error("VIDEOS is required, unless you use --demo 12")
    else:
        with Client(api="sync.so", limit=given.limit, ledger=given.ledger) as client:
            failed = films(client, read(given.videos), given.out)
            print(f"{failed} failed, {client.requests} requests")


if __name__ == "__main__":
    main()
