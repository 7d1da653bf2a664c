"""A hundred videos through a lip-sync API, with one budget of requests for all of them, and over crashes.

    python lipsync.py videos.txt --out films

`videos.txt` has two addresses a line: of a video and of the sound that its lips are to follow. The key is in
SYNC_API_KEY. `python lipsync.py --demo 12` shows it without one, against a vendor that is started here.

How to read it: `films` below is all of it. Who starts it again after a crash goes on where it was: submissions have
idempotency keys, so that a video which was sent is found and not paid for twice, and the ledger has what is waited for.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from bide import Client, JobFailed
from bide.lab.scenario import Rules
from bide.lab.vendor import Vendor


def films(client: Client, videos: list[tuple[str, str]], out: Path) -> int:
    """Sends them, waits for them, fetches the films; how many failed."""
    names = {}
    for video, sound in videos:
        # The client waits for its turn by itself: submissions, questions and results share one budget.
        job = client.submit("lipsync", order(video, sound), idempotency_key=key(video, sound))
        names[job.id] = Path(video).stem
    failed = 0
    # All that was sent and not dealt with: by this run, or by one that was cut off.
    for job in client.as_completed(client.untold(), progress=True):
        try:
            job.result()
            job.download("result", out / f"{names.get(job.id, job.id)}.mp4")
        except JobFailed as error:  # the job itself failed; a poll that fails is tried again
            print(f"{names.get(job.id, job.id)}: {error.error.message if error.error else error.status}")
            failed += 1
        client.told(job)  # now it is dealt with
    return failed


def order(video: str, sound: str) -> dict[str, object]:
    """What sync.so takes."""
    return {
        "model": "lipsync-2",
        "input": [{"type": "video", "url": video}, {"type": "audio", "url": sound}],
    }


def key(video: str, sound: str) -> str:
    """The same for the same order, whenever it is sent."""
    return hashlib.sha256(f"{video} {sound}".encode()).hexdigest()[:32]


def read(path: Path) -> list[tuple[str, str]]:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [(video, sound) for video, sound in lines]


def demo(count: int, out: Path, ledger: Path) -> None:
    """The same against a vendor of our own: it takes one to four seconds a video and 20 requests a second."""
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
    parser.add_argument("videos", type=Path, nargs="?", help="two addresses a line: video and sound")
    parser.add_argument("--out", type=Path, default=Path("films"))
    parser.add_argument("--ledger", type=Path, default=Path("films.ledger"))
    parser.add_argument("--limit", default="60/1m", help="requests that your account may send")
    parser.add_argument(
        "--demo", type=int, metavar="COUNT", help="so many videos, to a vendor of our own"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.demo:
        demo(given.demo, given.out, given.ledger)
    elif given.videos is None:
        parser.error("which videos? Or --demo 12")
    else:
        with Client(api="sync.so", limit=given.limit, ledger=given.ledger) as client:
            failed = films(client, read(given.videos), given.out)
            print(f"{failed} failed, {client.requests} requests")


if __name__ == "__main__":
    main()
