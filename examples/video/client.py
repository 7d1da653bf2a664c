"""Submits a film, shows progress, and downloads the output files: python client.py FILM [FOLDER]

The service is `bide serve app:app`. Run it again after a crash: it resumes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bide import Client

film = Path(sys.argv[1])
folder = Path(sys.argv[2] if len(sys.argv) > 2 else "out")
folder.mkdir(parents=True, exist_ok=True)

# The service is at BIDE_URL, or on this machine.
with Client(ledger=folder / "ledger") as client:
    job = client.submit("video", {"height": 360}, file=film)
    about = job.result(timeout=3600, progress=True)  # JobFailed has the error and its step
    print(f"{about['source']['seconds']:.0f} s of {about['source']['codec']}")
    for name in job.files:
        print(job.download(name, folder))
    client.acknowledge(job)
