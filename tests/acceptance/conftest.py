"""bide as a user installs it: with the commands of the README, typed in a copy of the repository."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.hours import Guide, Hour
from tests.docs.pages import ROOT, Block, blocks
from tests.docs.transcripts import steps

FIRST_HOURS = ROOT / "docs" / "tutorial" / "first-hours.md"
COPIED = ("src", "examples", "pyproject.toml", "README.md", "LICENSE")
UVICORN = "#!{python}\nimport sys\nfrom uvicorn.main import main\nsys.exit(main())\n"


@dataclass(frozen=True)
class Installed:
    """A home that is empty except for `bide`: a copy of the repository, with a venv."""

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
    """No test uses the network: pip builds and installs bide, and finds all other packages where this Python does."""
    folder = tmp_path_factory.mktemp("installed")
    home, programs = folder / "home", folder / "programs"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys._base_executable}" "$@"\n')  # type: ignore[attr-defined]
    (programs / "python3").chmod(0o755)
    for name in COPIED:
        target = home / "bide" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
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
    found = Installed(home, environment)
    guide = Guide(installs())
    with Hour(home, environment, guide, {}) as hour:
        for step in steps(FIRST_HOURS, "install"):
            hour.play(step)
            if step.typed is not None and "-m venv" in step.typed:
                _lend_packages(found.venv)
    assert guide.left == []
    return found


def installs() -> list[Block]:
    """The blocks of the README that install bide."""
    return [block for block in blocks(ROOT / "README.md") if "-m venv" in block.text]


def _lend_packages(venv: Path) -> None:
    (packages,) = (venv / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"])
    script = venv / "bin" / "uvicorn"
    script.write_text(UVICORN.format(python=venv / "bin" / "python"))
    script.chmod(0o755)
