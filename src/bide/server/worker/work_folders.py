"""The working folders of jobs (`ctx.folder`): how they are removed while the same job may run again.

1. A folder is renamed before it is removed, so that a later attempt of the job begins with a folder of its own.
2. What a crash leaves between the two has a name by which a sweep finds it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from bide.core.wire import is_job_id

_MARK = ".removed-"


def rename(folder: str) -> str | None:
    """Gives the folder a name for its removal, and returns it; None if it cannot: it stays until its job is purged."""
    renamed = f"{folder}{_MARK}{secrets.token_hex(4)}"
    try:
        os.rename(folder, renamed)  # noqa: PTH104 — paths are strings here
    except OSError:
        return None
    return renamed


def delete(renamed: str) -> None:
    shutil.rmtree(renamed, ignore_errors=True)


def remove(folder: Path) -> None:
    """Both at once: for a job that does not exist any more."""
    delete(rename(str(folder)) or str(folder))


def old(work: Path, before: float) -> tuple[set[str], list[str]]:
    """Of the folders that did not change since `before`: the ids of their jobs, and the paths of renamed ones."""
    jobs: set[str] = set()
    renamed: list[str] = []
    if not work.is_dir():
        return jobs, renamed
    for entry in os.scandir(work):
        with suppress(FileNotFoundError):  # it is being removed
            if not entry.is_dir(follow_symlinks=False) or entry.stat().st_mtime >= before:
                continue
            if is_job_id(entry.name):
                jobs.add(entry.name)
            elif is_job_id(entry.name.partition(_MARK)[0]):
                renamed.append(entry.path)
    return jobs, renamed
