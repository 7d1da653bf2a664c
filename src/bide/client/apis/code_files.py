"""Finds the files with the code that a description runs, without running it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

INTERPRETERS = ("bash", "dash", "node", "perl", "python", "python3", "ruby", "sh", "zsh")


def code_digests(commands: Iterable[Sequence[str]], hook: str | None) -> list[str]:
    """Return one digest per file; a file that cannot be read counts as empty."""
    files = [file for command in commands for file in _command_files(command)]
    if hook is not None:
        files += _module_files(hook.partition(":")[0])
    return [_digest(file) for file in files]


def _command_files(command: Sequence[str]) -> Iterator[Path]:
    """Yield the program, if it is a path, and the script, if the program is an interpreter."""
    if "/" in command[0]:
        yield Path(command[0])
    if Path(command[0]).name in INTERPRETERS:
        script = next((word for word in command[1:] if not word.startswith("-")), None)
        if script is not None:
            yield Path(script)


def _module_files(module: str) -> Iterator[Path]:
    """Yield the files of the module and its packages. importlib.util.find_spec would import those packages."""
    name, path = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path)
            if spec is not None:
                break
        if spec is None:
            return
        if spec.has_location and spec.origin is not None:
            yield Path(spec.origin)
        path = spec.submodule_search_locations
        if path is None:
            return


def _digest(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""
