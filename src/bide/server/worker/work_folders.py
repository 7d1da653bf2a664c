"""The working folders of jobs (`ctx.folder`), and their removal while the same job may run again.

1. A folder is renamed before it is removed, so that a later attempt of the job starts with a new folder.
2. After a crash between the two, a sweep recognises the folder by its name.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from bide.core.wire.http import is_job_id

_MARK = ".removed-"


def rename(folder: str) -> str | None:
    """Rename the folder for its removal and return the new name. None if that fails: it stays until its job is purged."""
    renamed = f"{folder}{_MARK}{secrets.token_hex(4)}"
    try:
        os.rename(folder, renamed)  # noqa: PTH104 — paths are strings here
    except OSError:
        return None
    return renamed


def delete(renamed: str) -> None:
    shutil.rmtree(renamed, ignore_errors=True)


def remove(folder: Path) -> None:
    """Rename and delete the folder of a job that no longer exists."""
    delete(rename(str(folder)) or str(folder))


async def sweep(
    work: Path, before: float, known: Callable[[Sequence[str]], Awaitable[set[str]]]
) -> None:
    """Remove folders that have not changed since `before`: those whose job no longer exists, and renamed ones. `known`
    returns the ids that belong to a job.
    """
    jobs, renamed = await asyncio.to_thread(_old, work, before)
    for folder in renamed:
        await asyncio.to_thread(delete, folder)
    for job_id in jobs - await known(list(jobs)):
        await asyncio.to_thread(remove, work / job_id)


def _old(work: Path, before: float) -> tuple[set[str], list[str]]:
    """Folders that have not changed since `before`: the job ids of normal ones, and the paths of renamed ones."""
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
