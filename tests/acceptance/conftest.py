"""bide as a user installs it: with the commands of the README, typed in a copy of the repository."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.hours import Guide, Hour
from tests.acceptance.lending import lending
from tests.docs.pages import ROOT, Block, blocks, copy_folder
from tests.docs.transcripts import Step, steps

FIRST_HOURS = ROOT / "docs" / "tutorial" / "first-hours.md"
COPIED = ("src", "examples", "pyproject.toml", "README.md", "LICENSE")


@dataclass(frozen=True)
class Installed:
    """A home that is empty except for `bide`: a copy of the repository, in which the user makes a venv."""

    home: Path
    environment: dict[str, str]

    @property
    def venv(self) -> Path:
        return self.home / "bide" / ".venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """bide with the extra that the README installs. No test uses the network: pip builds and installs bide."""
    found = new_home(tmp_path_factory.mktemp("installed"))
    guide = Guide(installs())
    with Hour(found.home, found.environment, guide, {}) as hour:
        follow(hour, found, steps(FIRST_HOURS, "install"))
    assert guide.left == []
    return found


def new_home(folder: Path) -> Installed:
    home, programs = folder / "home", folder / "programs"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys._base_executable}" "$@"\n')  # type: ignore[attr-defined]
    (programs / "python3").chmod(0o755)
    for name in COPIED:
        target = home / "bide" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = copy_folder if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, target)
    environment = {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{programs}:/usr/bin:/bin",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # which means: without
        "PIP_NO_INDEX": "1",
        "TMPDIR": str(folder),
        "VIRTUAL_ENV_DISABLE_PROMPT": "1",
    }
    return Installed(home, environment)


def follow(hour: Hour, installed: Installed, transcript: list[Step]) -> None:
    for step in transcript:
        with lending(installed.venv, step.typed):
            hour.play(step)


def installs() -> list[Block]:
    """The blocks of the README that install bide."""
    return [block for block in blocks(ROOT / "README.md") if "-m venv" in block.text]
