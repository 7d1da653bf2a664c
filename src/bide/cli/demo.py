"""`bide demo`: starts a service, sends it real work, shows progress bars, and prints the results.

1. The demo stops what it started, however it ends: after the last job, on an error, Ctrl-C, SIGTERM or SIGHUP.
2. Results go to stdout (with --json one object per line), everything else to stderr.
3. The exit code is 0 only if every job is DONE and its files are downloaded.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from bide.cli import FAILED
from bide.cli.output import json_option, print_json, print_table
from bide.client.blocking import BlockingJob, Client
from bide.core.clock import read_instant
from bide.core.errors import ServiceError, SetupError
from bide.core.jobs.record import Status
from bide.core.wire.http import JobStatus, WireFile
from bide.demo.process import ServiceProcess
from bide.demo.show import display, watch
from bide.demo.traffic import Traffic

TARGET = "bide.demo.video:app"
KEPT_TARGET = "bide.demo.mixed:app"  # with jobs of other kinds, for the dashboard
LENGTHS = (6, 12, 18)  # seconds of video; further jobs start with the first again
NEEDED = ("httptools", "imageio_ffmpeg", "prometheus_client", "pydantic")


@click.command()
@click.option(
    "--jobs",
    "count",
    type=click.IntRange(1, 50),
    default=len(LENGTHS),
    show_default=True,
    help="How many videos to make.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep the service running afterwards, until Ctrl-C, and send it more jobs to look at in the dashboard.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="The port of the service; 0 for any free one.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the videos.  [default: a new temporary one]",
)
@json_option
def demo(count: int, keep: bool, port: int, out: Path | None, as_json: bool) -> None:
    """Run a video pipeline as jobs and watch its progress.

    The demo starts a service, submits jobs that make videos, shows their progress, downloads the files and stops the
    service. It uses only this machine and takes about 20 seconds.

    \b
    Examples:
      bide demo
      bide demo --jobs 6 --out videos
      bide demo --keep --port 8642
    """
    _check_packages()
    with (
        _ended_by_signals(),
        _folder_for(out) as place,
        tempfile.TemporaryDirectory(prefix="bide-demo-data-") as folder,
    ):
        target = KEPT_TARGET if keep else TARGET
        service = ServiceProcess(target, Path(folder), port)
        try:
            with service, Client(service.url) as client:
                _say(
                    f"The service of this demo runs at {service.url} (`bide serve {target}`). "
                    "Open this address in a browser to see its dashboard."
                )
                run = Run(client, place)
                good = run.videos(count)
                run.print_json() if as_json else run.print()
                if keep:
                    _keep(service, run)
                elif not as_json:
                    click.echo("To look around in the dashboard, run `bide demo --keep`.")
        except Exception:
            _show_log(service)
            raise
        if not good:
            _show_log(service)
            raise click.exceptions.Exit(FAILED)


def _check_packages() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError.not_installed(f"The demo needs {', '.join(missing)}", "demo")
    import imageio_ffmpeg

    try:
        imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:  # neither a wheel for this platform nor an installed ffmpeg
        raise SetupError(
            f"The demo needs ffmpeg: {error}. Install it, or set IMAGEIO_FFMPEG_EXE to its path."
        ) from None


@contextmanager
def _folder_for(out: Path | None) -> Iterator[Path]:
    """Return the folder for the videos. A temporary folder is kept only if it contains a file."""
    if out is not None:
        yield out.resolve()
        return
    made = Path(tempfile.mkdtemp(prefix="bide-demo-"))
    try:
        yield made
    finally:
        with suppress(OSError):
            made.rmdir()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn signals into SystemExit, so that the service is stopped."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _show_log(service: ServiceProcess) -> None:
    _say(f"--- last lines of the service's log\n{service.tail()}\n---")


@dataclass
class Requests:
    """How many requests the client has sent, by purpose."""

    submit: int = 0
    watch: int = 0
    download: int = 0

    @property
    def all(self) -> int:
        return self.submit + self.watch + self.download


@dataclass
class Fetched:
    """A downloaded file of a job."""

    job: JobStatus
    file: WireFile
    path: Path


@dataclass
class Run:
    """One run of the demo, from the submission to the files."""

    client: Client
    out: Path
    requests: Requests = field(default_factory=Requests)
    names: dict[str, str] = field(default_factory=dict)  # of the videos, by job
    jobs: dict[str, JobStatus] = field(default_factory=dict)  # thumbnails too
    files: dict[str, list[Fetched]] = field(default_factory=dict)  # by video
    seconds: float = 0.0

    def videos(self, count: int) -> bool:
        """Make the videos. Return whether every job is DONE."""
        began = time.monotonic()
        handles = self._submit(count)
        self.requests.submit = self.client.requests
        with display(list(self.names.values())) as show:
            self.jobs = watch(self.client, self.names, show)
        self.seconds = time.monotonic() - began
        self.requests.watch = self.client.requests - self.requests.all
        for handle in handles:
            self.files[handle.id] = self._fetch(self.jobs[handle.id])
        self.requests.download = self.client.requests - self.requests.all
        return all(job.status is Status.DONE for job in self.jobs.values())

    def _submit(self, count: int) -> list[BlockingJob]:
        """Submit all jobs in one request."""
        lengths = [LENGTHS[number % len(LENGTHS)] for number in range(count)]
        outcomes = self.client.submit_many(
            [{"kind": "video", "input": {"seconds": seconds}} for seconds in lengths]
        )
        handles = []
        for number, (outcome, seconds) in enumerate(zip(outcomes, lengths, strict=True), 1):
            if isinstance(outcome, ServiceError):
                raise outcome
            handles.append(outcome)
            self.names[outcome.id] = f"video {number} ({seconds} s)"
        return handles

    def _fetch(self, video: JobStatus) -> list[Fetched]:
        """Download the files of the video and of its thumbnail; the client checks their SHA-256."""
        number = list(self.names).index(video.job_id) + 1
        folder = self.out / f"video-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        family = [video, *(self.jobs[child.job_id] for child in video.children)]
        found = []
        for job in family:
            handle = self.client.job(job.job_id)
            files = job.files if job.status is Status.DONE else ()
            found += [Fetched(job, file, handle.download(file.name, folder)) for file in files]
        return found

    def print(self) -> None:
        rows = []
        for job_id, name in self.names.items():
            job = self.jobs[job_id]
            waited = _duration(job.created_at, job.started_at)
            took = _duration(job.started_at, job.finished_at)
            files = [[_where(f.path), _size(f.file.size)] for f in self.files[job_id]]
            first = [name, str(job.status), waited, took]
            rows.append([*first, *(files[0] if files else ("", ""))])
            rows += [["", "", "", "", *file] for file in files[1:]]
        click.echo()
        print_table(("job", "status", "waited", "took", "file", "size"), rows, empty="no jobs")
        counts = self.requests
        click.echo(
            f"\n{_count(len(self.names), 'video')} took {self.seconds:.1f} s and {counts.all} HTTP requests: "
            f"{counts.submit} to submit, {counts.watch} to poll (each polls all jobs), "
            f"{counts.download} to download the files.\nThe files are in     {self.out}"
        )
        pipeline = importlib.util.find_spec(TARGET.partition(":")[0])
        if pipeline is not None:
            click.echo(f"The pipeline is in   {pipeline.origin}")

    def print_json(self) -> None:
        for job_id, fetched in self.files.items():
            job = self.jobs[job_id]
            files = [
                {"name": f.file.name, "jobId": f.job.job_id, "size": f.file.size, "path": str(f.path)}
                for f in fetched
            ]
            line = {"jobId": job_id, "status": job.status, "error": job.error, "files": files}
            times = {"startedAt": job.started_at, "finishedAt": job.finished_at}
            print_json({**line, **times})
        counts = self.requests
        print_json(
            {
                "jobs": len(self.names),
                "seconds": round(self.seconds, 3),
                "requests": counts.all,
                "requestsFor": {
                    "submit": counts.submit,
                    "watch": counts.watch,
                    "download": counts.download,
                },
                "out": str(self.out),
            }
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _where(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _duration(start: str | None, end: str | None) -> str:
    return "" if start is None or end is None else f"{read_instant(end) - read_instant(start):.1f} s"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


def _keep(service: ServiceProcess, run: Run) -> None:
    """Keep the service running with jobs of several kinds, and print commands to try."""
    url, job_id = service.url, next(iter(run.names))
    traffic = Traffic(run.client)
    traffic.begin(
        [one.path for files in run.files.values() for one in files if one.file.name == "video.mp4"]
    )
    _say(
        f"""
The dashboard is at {url}/. It shows jobs of several kinds; some of them fail. The service runs until Ctrl-C.

In another terminal:

  curl {url}/jobs
  curl {url}/jobs/{job_id}
  curl -O {url}/jobs/{job_id}/files/video.mp4
  curl -i {url}/jobs -H 'Content-Type: application/json' -d '{{"kind": "video", "input": {{"seconds": 3}}}}'
  bide submit video --input '{{"seconds": 3}}' --wait --url {url}

The HTTP interface is described at {url}/docs"""
    )
    sys.stdout.flush()
    try:
        while service.alive:
            time.sleep(0.2)
            traffic.tick()
    except KeyboardInterrupt:
        _say("")
        return
    raise SetupError("The service of the demo exited unexpectedly. Its log is above.")
