"""The examples that begin with an upload, as they are, on either store and either engine: real ffmpeg, real tesseract."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import pytest

from bide import Client, JobFailed
from bide.server.config import Config, EngineConfig, StoreConfig
from tests.servers.service import ServiceProcess
from tests.servers.worker import WorkerProcess
from tests.waiting import until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE = 90.0
Serve = Callable[..., ServiceProcess]


@dataclass(frozen=True)
class Place:
    """The store of a service, and the engine that notifies its workers."""

    store: str | None = None
    broker: str | None = None

    @property
    def options(self) -> list[str]:
        engine = [] if self.broker is None else ["--engine", "celery", "--broker", self.broker]
        return [*([] if self.store is None else ["--store", self.store]), *engine]


EMBEDDED = Place()


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    with contextlib.ExitStack() as ends:

        def start(target: str, folder: Path, place: Place = EMBEDDED, **env: str) -> ServiceProcess:
            path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
            monkeypatch.setenv("PYTHONPATH", path)
            options = ["--upload-lifetime", "1", "--input-lifetime", "0", *place.options]
            process = ServiceProcess(tmp_path, target, env=env, options=options)
            process.start()
            ends.callback(process.stop)
            if place.broker is not None:
                engine, store = EngineConfig("celery", place.broker), StoreConfig(place.store)
                config = Config(data=process.data, store=store, engine=engine)
                ends.callback(WorkerProcess(config, target, tmp_path / "worker.log").end)
            return process

        yield start


# Celery has its jobs in PostgreSQL, too.
@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.soak) for name in ("postgresql", "celery"))]
)
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "sqlite":
        return EMBEDDED
    schema = hashlib.sha256(request.node.name.encode()).hexdigest()[:16]
    store = f"{request.getfixturevalue('postgres').url}?schema=t{schema}"
    celery = request.param == "celery"
    return Place(store, request.getfixturevalue("redis_server").url if celery else None)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    subprocess.run([sys.executable, EXAMPLES / "video" / "clip.py", path, "1"], check=True)
    return path


def get(service: ServiceProcess, path: str) -> bytes:
    with urllib.request.urlopen(service.url + path, timeout=PATIENCE) as answer:
        data: bytes = answer.read()
        return data


def originals(service: ServiceProcess) -> list[Path]:
    """What the service has of uploads."""
    return [path for path in (service.data / "blobs" / "uploads").rglob("*") if path.is_file()]


def test_a_film_is_uploaded_and_transcoded(serve: Serve, place: Place, film: Path) -> None:
    service = serve("app:app", EXAMPLES / "video", place)
    shown: list[Any] = []
    with Client(service.url) as client:
        job = client.submit("video", {"height": 180}, file=film)
        assert len(originals(service)) == 1
        about = job.result(timeout=PATIENCE, on_change=shown.append)
        record = job.status()
        assert [step.name for step in record.steps] == ["probe", "transcode", "thumbnail", "metadata"]
        assert about["source"]["sha256"] == hashlib.sha256(film.read_bytes()).hexdigest()
        assert (about["source"]["height"], about["source"]["frames"]) == (720, 30)
        percents = [one.progress.percent for one in shown if one.progress is not None]
        assert percents == sorted(percents) and percents[-1] == 100

        made = film.with_name("video.mp4")
        made.write_bytes(get(service, about["links"]["video"]))
        assert frames(made) == 30
        assert get(service, about["links"]["thumbnail"]).startswith(b"\xff\xd8\xff")
        assert json.loads(get(service, f"/jobs/{job.id}/files/metadata.json")) == about

        if place.store is None:  # the upkeep looks every few seconds; once is enough
            until(lambda: not originals(service))  # the original is removed when no job needs it
            assert len(get(service, about["links"]["video"])) == made.stat().st_size


def frames(video: Path) -> int:
    """That ffmpeg decodes without a complaint."""
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-xerror", "-progress", "pipe:1"]
    done = subprocess.run(
        [*program, "-i", video, "-f", "null", "-"], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return int(done.stdout.split("frame=")[-1].split()[0])


def test_a_step_that_fails_is_repeated_alone(serve: Serve, film: Path, tmp_path: Path) -> None:
    service = serve("tests.apps.flaky_film:app", ROOT, RAN=str(tmp_path / "ran"))
    with Client(service.url) as client:
        job = client.submit("video", {"height": 90}, file=film)
        job.result(timeout=PATIENCE)
        assert job.status().attempt == 2
        assert (tmp_path / "ran").read_text().split() == ["transcode", "thumbnail", "thumbnail"]

        (tmp_path / "letter.mp4").write_text("Dear Sir or Madam")
        with pytest.raises(JobFailed) as failed:
            client.submit("video", file=tmp_path / "letter.mp4").result(timeout=PATIENCE)
    assert failed.value.error is not None
    assert (failed.value.error.code, failed.value.error.failed_step) == ("NOT_A_VIDEO", "probe")


# Its README runs as a test on SQLite.
@pytest.mark.soak
@pytest.mark.parametrize("place", ["postgresql", "celery"], indirect=True)
def test_text_is_read_from_a_scan(serve: Serve, place: Place, tmp_path: Path) -> None:
    if shutil.which("tesseract") is None:
        reason = "there is no tesseract: apt install tesseract-ocr"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    scan = tmp_path / "scan.tiff"
    subprocess.run(
        [sys.executable, EXAMPLES / "ocr" / "scan.py", scan, "Now is the winter", "of our discontent"],
        check=True,
    )
    service = serve("app:app", EXAMPLES / "ocr", place)
    with Client(service.url) as client:
        job = client.submit("ocr", file=scan)
        about = job.result(timeout=PATIENCE)
        assert (about["pages"], about["words"]) == (2, 7)
        pages = get(service, about["links"]["text"]).decode().split("\f")
        assert [page.strip() for page in pages] == ["Now is the winter", "of our discontent"]

        with pytest.raises(JobFailed) as failed:
            client.submit("ocr", {"page_timeout": 0.001}, file=scan).result(timeout=PATIENCE)
        error = failed.value.error
        assert error is not None
        assert (error.code, error.failed_step) == ("OCR_TIMEOUT", "text-extraction")
        assert (error.retryable, error.attempt) == (True, 3)

        (tmp_path / "letter.tiff").write_text("Dear Sir or Madam")
        with pytest.raises(JobFailed, match="in step pages: NOT_A_DOCUMENT"):
            client.submit("ocr", file=tmp_path / "letter.tiff").result(timeout=PATIENCE)
