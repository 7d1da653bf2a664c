"""The demo as a newcomer runs it, and the promises that its pipeline makes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import imageio_ffmpeg
import pytest

from bide import Client
from bide.core.jobs.record import Status
from bide.demo.process import ServiceProcess
from bide.demo.traffic import Traffic
from bide.demo.video import app
from tests.terminal import Terminal
from tests.waiting import until

SMALL = {"seconds": 1, "width": 320, "height": 180, "target": 90}
DEMO = [sys.executable, "-m", "bide", "demo"]


def commands_with(text: str) -> list[str]:
    """The command lines of the processes that have it in theirs, our own aside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and path.parent.name != str(os.getpid()):
            found.append(line)
    return found


def is_whole(video: Path) -> bool:
    """Whether ffmpeg decodes all of it without a complaint."""
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-xerror", "-i", str(video)]
    done = subprocess.run([*program, "-f", "null", "-"], capture_output=True, check=False)
    return done.returncode == 0 and not done.stderr


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's temporary folders are in here, which identifies its processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess("bide.demo.video:app", tmp_path) as running:
        yield running


def test_bide_demo_makes_real_files_and_leaves_nothing_running(temporary: Path) -> None:
    out = temporary / "out"
    done = subprocess.run(
        [*DEMO, "--jobs", "1", "--out", str(out)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert re.search(r"1 video took [\d.]+ s and \d+ HTTP requests", done.stdout)
    assert str(out) in done.stdout
    assert "transcode" in done.stderr, "without a terminal each step is a line"
    assert "\x1b" not in done.stdout + done.stderr
    assert is_whole(out / "video-1" / "video.mp4")
    assert (out / "video-1" / "thumbnail.jpg").read_bytes().startswith(b"\xff\xd8\xff")
    assert json.loads((out / "video-1" / "metadata.json").read_text())["source"]["width"] == 1280
    assert commands_with(str(temporary)) == []
    assert [path.name for path in temporary.iterdir()] == ["out"], "its data folder is gone"


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_a_signal_ends_the_demo_and_its_service(temporary: Path, sent: int, code: int) -> None:
    with subprocess.Popen(DEMO, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as demo:
        try:
            assert demo.stderr is not None
            until(lambda: any("part.mp4" in line for line in commands_with(str(temporary))))
            demo.send_signal(sent)
            said = demo.stderr.read()
            assert demo.wait() == code
        finally:
            demo.kill()
    assert "Traceback" not in said
    assert commands_with(str(temporary)) == []
    assert list(temporary.iterdir()) == []


def test_a_missing_package_is_named_with_what_to_install() -> None:
    without = "import sys; sys.modules['imageio_ffmpeg'] = None; sys.argv = ['bide', 'demo']"
    command = [sys.executable, "-c", f"{without}; from bide.cli import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    said = "bide: The demo needs imageio_ffmpeg. Run in the checkout of bide: pip install '.[demo]'\n"
    assert done.stderr == said


def test_a_service_that_dies_fails_the_demo_and_shows_its_log(temporary: Path) -> None:
    with subprocess.Popen(DEMO, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as demo:
        try:
            children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")
            until(lambda: any("part.mp4" in line for line in commands_with(str(temporary))))
            [service] = map(int, children.read_text().split())
            os.kill(service, signal.SIGKILL)
            _, said = demo.communicate()
        finally:
            demo.kill()
    assert demo.returncode == 1
    assert "last lines of the service's log\nbide serves bide.demo.video:app at" in said
    assert "Traceback" not in said
    until(lambda: not commands_with(str(temporary)))


@pytest.mark.soak
def test_json_in_a_terminal_is_one_object_a_line_below_the_bars(temporary: Path) -> None:
    with Terminal(temporary, "demo", "--jobs", "1", "--json", columns=2000) as terminal:
        assert terminal.wait() == 0, terminal.lines()
        first, video, thumbnail, *printed = terminal.lines()
        moments = terminal.snapshots

    assert first.startswith("The service of this demo runs at http://127.0.0.1:")
    assert re.fullmatch(r"✓ video 1 \(6 s\) ━+ 100% DONE", video)
    assert re.fullmatch(r"✓ └ thumbnail +━+ 100% DONE", thumbnail)
    bars = {line for moment in moments for line in moment if "━" in line}
    assert any("Transcoding" in line for line in bars)
    assert not any("{" in line or "The service" in line for line in bars)
    job, summary = map(json.loads, printed)
    assert job["status"] == "DONE"
    assert {file["name"] for file in job["files"]} == {"video.mp4", "metadata.json", "thumbnail.jpg"}
    assert all(Path(file["path"]).stat().st_size == file["size"] for file in job["files"])
    assert summary["requests"] == sum(summary["requestsFor"].values())
    assert Path(summary["out"]).parent == temporary


def test_the_pipeline_runs_inline(tmp_path: Path) -> None:
    job = app.run_inline("video", SMALL, folder=tmp_path)

    assert job.status is Status.DONE
    assert list(job.steps) == ["generate", "probe", "transcode", "metadata"]
    assert job.result["source"] == {
        "seconds": 1.0,
        "codec": "h264",
        "width": 320,
        "height": 180,
        "fps": 30.0,
    }
    assert is_whole(job.files["video.mp4"])
    assert json.loads(job.files["metadata.json"].read_text()) == job.result
    picture = job.result["thumbnail"]
    [path] = tmp_path.rglob(f"{picture['job']}/*/{picture['name']}")
    assert path.read_bytes().startswith(b"\xff\xd8\xff")


def test_progress_is_that_of_ffmpeg_and_never_falls(tmp_path: Path) -> None:
    job = app.run_inline("video", {**SMALL, "seconds": 20}, folder=tmp_path)

    told = [one for one in job.progress if one.message == "Transcoding"]
    assert told and all(one.total == 600 and one.unit == "frames" for one in told)
    percents = [one.percent for one in job.progress if one.percent is not None]
    assert percents == sorted(percents)
    assert percents[-1] == 100


def test_bad_input_is_refused_before_there_is_a_job() -> None:
    kind = app.kind("video")
    for wrong in ({"seconds": 0}, {"width": 321}, {"codec": "h265"}):
        with pytest.raises(Exception, match="does not fit"):
            kind.read_input(json.dumps(wrong).encode())


def test_a_cancelled_video_leaves_no_ffmpeg(service: ServiceProcess) -> None:
    with Client(service.url) as client:
        job = client.submit("video", {"seconds": 600})
        until(lambda: commands_with(f"/{job.id}/"))
        job.cancel()
        ended = until(lambda: (now := job.status()).status.terminal and now)
        assert ended.status is Status.CANCELLED
        assert until(lambda: not commands_with(f"/{job.id}/"), timeout=5.0)


@pytest.fixture
def variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcess]:
    monkeypatch.setenv("DEMO_NOTES", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with ServiceProcess("tests.apps.flaky_video:app", tmp_path) as running:
        yield running


def test_a_thumbnail_that_fails_is_repeated_alone(variant: ServiceProcess, tmp_path: Path) -> None:
    (tmp_path / "failures").write_text("1")
    with Client(variant.url) as client:
        client.submit("video").result(timeout=60)
    assert (tmp_path / "ran").read_text().split() == ["transcode", "thumbnail", "thumbnail"]


def test_a_retried_video_repeats_its_failed_thumbnail_alone(
    variant: ServiceProcess, tmp_path: Path
) -> None:
    (tmp_path / "failures").write_text("2")
    with Client(variant.url) as client:
        job = client.submit("video")
        failed = until(lambda: (now := job.status()).status.terminal and now)
        assert failed.status is Status.ERROR
        assert failed.error is not None and failed.error.code == "CHILD_FAILED"
        job.retry()
        assert job.result(timeout=60)["thumbnail"]["name"] == "thumbnail.jpg"
        assert {file.name for file in job.status().files} == {"video.mp4", "metadata.json"}
    assert (tmp_path / "ran").read_text().split() == ["transcode", *["thumbnail"] * 3]


def test_the_jobs_of_a_kept_demo_show_all_that_there_is(tmp_path: Path) -> None:
    """Jobs that run, wait, have failed and were retried, of several kinds, with output, children and files."""
    with ServiceProcess("bide.demo.mixed:app", tmp_path) as service, Client(service.url) as client:
        traffic = Traffic(client)
        traffic.begin([Path(__file__)])
        shows_everything(client)
        before = len(client.list(limit=None))

        def another() -> bool:
            traffic.tick()
            return len(client.list(limit=None)) > before

        until(another)


@pytest.mark.soak
def test_a_demo_that_is_kept_has_something_to_look_at(temporary: Path) -> None:
    command = [*DEMO, "--keep", "--jobs", "1", "--out", str(temporary / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as demo:
        try:
            assert demo.stderr is not None
            said = ""
            while "The dashboard is at" not in said:
                said = demo.stderr.readline()
                assert said, "the demo has ended"
            with Client(re.findall(r"http://[\d.:]+", said)[0]) as client:
                shows_everything(client)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate()
    assert demo.returncode == 0
    assert commands_with(str(temporary)) == []


def shows_everything(client: Client) -> None:
    def seen() -> bool:
        jobs = client.list()
        statuses = {job.status for job in jobs}
        wanted = {Status.PROCESSING, Status.PENDING, Status.DONE, Status.ERROR, Status.PARTIAL_SUCCESS}
        return (
            wanted <= statuses
            and len({job.kind for job in jobs}) >= 5
            and any(job.attempt > 1 for job in jobs)
            and any(job.children for job in jobs)
        )

    until(seen, timeout=90)
    failed = client.list(status="ERROR", kind="report")[0]
    assert failed.error is not None and failed.error.code == "KEY_ERROR"
    assert client.list(kind="checksum"), "a file was uploaded"
    spoken = client.list(status=["PROCESSING", "DONE"], kind="transcribe", order="oldest")[0]
    first = next(iter(client.job(spoken.job_id).stream()))
    assert first.data["text"] == "Good morning, and thank you all for coming."
