"""Sends one video to the service, shows a bar, and fetches the files. The service is `bide serve app:app`."""

from __future__ import annotations

import sys
from pathlib import Path

from bide import Client

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
folder.mkdir(parents=True, exist_ok=True)

with Client() as client:  # the service of BIDE_URL, or else the one on this machine
    job = client.submit("video", {"seconds": 5, "target": 360})
    about = job.result(timeout=600, progress=True)  # JobFailed says what went wrong

    print(job.download("video.mp4", folder))
    print(job.download("metadata.json", folder))
    picture = about["thumbnail"]  # a file of another job: the thumbnail is one of its own
    print(client.job(picture["job"]).download(picture["name"], folder))
    print(f"{client.requests} requests")
