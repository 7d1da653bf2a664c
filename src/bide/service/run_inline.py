"""Runs a job in this process without a store, for users' tests.

The handler gets the same context as in a child process. Step results are stored. Spawned children run one after another,
and the parent runs again after each park, as in a service.
"""

from __future__ import annotations

import asyncio
import atexit
import mimetypes
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from bide.core.jobs.record import FileInfo, Progress, Status
from bide.core.wire.http import job_id
from bide.server.blobs.files import FileBlobs
from bide.server.config import WorkerConfig
from bide.server.intake import new_trace_id
from bide.server.registry import File, FileRef, Registry
from bide.server.worker import protocol as p
from bide.server.worker.context import Context, HandlerParked, code_of, to_json
from bide.service.data_folder import DataFolder


class InlineJob(msgspec.Struct):
    """The outcome of a job."""

    status: Status
    result: Any
    errors: list[dict[str, Any]]
    files: dict[str, Path]
    steps: dict[str, Any]
    progress: list[Progress]
    log: list[dict[str, Any]]
    output: list[Any]  # what `ctx.emit` has added, in the last run of the handler


class _Recorder:
    """The channel of a context without a supervisor."""

    def __init__(self) -> None:
        self.steps: dict[str, bytes] = {}
        self.spawned: list[p.Spawn] = []
        self.progress: list[Progress] = []
        self.log: list[dict[str, Any]] = []
        self.output: list[Any] = []
        self.files: list[FileInfo] = []

    def send(self, message: p.ChildMessage) -> None:
        if isinstance(message, p.ProgressChanged) and message.progress is not None:
            self.progress.append(message.progress)
        elif isinstance(message, p.JobLogLine):
            self.log.append(message.line)
        elif isinstance(message, p.OutputEmitted):
            self.output.append(msgspec.json.decode(message.data))
        elif isinstance(message, p.Spawn):
            self.spawned.append(message)
            self.files += message.files

    def try_send(self, message: p.ChildMessage) -> bool:
        self.send(message)
        return True

    def ask(self, message: p.StepRequest) -> p.StepReply:
        if isinstance(message, p.EnterBreaker):  # all breakers are closed
            return p.StepReply(message.number, True)
        assert isinstance(message, p.KeepStep), "all stored results are in the run message"
        self.steps[message.step] = message.result
        self.files += message.files
        return p.StepReply(message.number, True)

    async def ask_async(self, message: p.StepRequest) -> p.StepReply:
        return self.ask(message)


class InlineRunner:
    """Runs a job and its children, which share their files."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self._registry = registry
        places = DataFolder(folder)
        self._blobs = FileBlobs(places.blobs)
        self._work = places.work
        self._files: dict[tuple[str, str], FileInfo] = {}
        self._trace_id = new_trace_id()

    def add_file(self, path: Path) -> File:
        """Store a file of the test for a `File` parameter."""
        content_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        owner = job_id(time.time(), os.urandom(16))
        info = self._blobs.put(owner, 1, path.name, path, content_type)
        self._files[owner, info.name] = info
        return self._resolve(FileRef(owner, info.name))

    def run(self, kind_name: str, raw: bytes, own_id: str | None = None) -> InlineJob:
        kind = self._registry.kind(kind_name)
        recorder = _Recorder()
        own_id = own_id or job_id(time.time(), os.urandom(16))
        children: list[p.SpawnedJobState] = []
        fence = 0
        while True:
            fence += 1
            steps = dict(recorder.steps)
            recorder.output.clear()
            run = p.RunJob(
                *(own_id, fence, 1, kind_name, raw, [], steps, children),
                trace_id=self._trace_id,
                output_left=WorkerConfig().output_limit,
            )
            context = Context(run, recorder, self._registry, self._blobs, self._work)
            arguments = (context,) if kind.takes_context else ()
            try:
                value = kind.fn(*arguments, **kind.read_input(raw, self._resolve))
                if asyncio.iscoroutine(value):
                    value = asyncio.run(value)
            except HandlerParked:
                self._record(own_id, recorder, context)
                children += [self._child(s) for s in recorder.spawned[len(children) :]]
                continue
            self._record(own_id, recorder, context)
            value, errors = context.finish(value)
            return InlineJob(
                Status.PARTIAL_SUCCESS if errors is not None else Status.DONE,
                msgspec.json.decode(to_json(value, "the result")),
                errors or [],
                {f.name: self._blobs.path(f.blob) for f in recorder.files},
                {name: msgspec.json.decode(text) for name, text in recorder.steps.items()},
                recorder.progress,
                recorder.log,
                recorder.output,
            )

    def _record(self, own_id: str, recorder: _Recorder, context: Context) -> None:
        context.flush()
        recorder.files += context.take_files()
        self._files.update(((own_id, f.name), f) for f in recorder.files)

    def _child(self, spawn: p.Spawn) -> p.SpawnedJobState:
        state = p.SpawnedJobState(spawn.child_id, spawn.key, spawn.kind, Status.DONE)
        try:
            outcome = self.run(spawn.kind, spawn.input, spawn.child_id)
        except Exception as error:
            state.status = Status.ERROR
            code = getattr(error, "code", None) or code_of(error)
            state.error = {"code": code, "message": str(error)}
        else:
            state.status = outcome.status
            state.result = msgspec.json.encode(outcome.result)
            state.files = [
                p.GivenFile(job, info) for (job, _), info in self._files.items() if job == spawn.child_id
            ]
        return state

    def _resolve(self, ref: FileRef) -> File:
        info = self._files[ref.job, ref.name]
        return File(ref, self._blobs.path(info.blob), info.content_type, info.size, info.sha256)


def run_inline(registry: Registry, kind: str, input: dict[str, Any], folder: Path | None) -> InlineJob:
    """Run a job with its files in `folder`, or in a temporary folder that is removed when this process exits."""
    runner = InlineRunner(registry, folder if folder is not None else _temporary())
    given = {k: runner.add_file(v) if isinstance(v, Path) else v for k, v in input.items()}
    return runner.run(kind, to_json(given, "the input"))


def _temporary() -> Path:
    """The caller may read the files of a job at any later time, so they stay until the process exits."""
    folder = tempfile.mkdtemp(prefix="bide-inline-")
    atexit.register(_remove, folder, os.getpid())
    return Path(folder)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked process
        shutil.rmtree(folder, ignore_errors=True)
