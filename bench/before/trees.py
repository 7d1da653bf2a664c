"""The two trees that are compared: the one that this file is in, and an earlier revision of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from bench.service.servers import ROOT, Unready


@dataclass(frozen=True)
class Tree:
    """`bench` is always that of the new tree; only `bide` differs."""

    name: str
    source: Path

    @property
    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join((str(self.source), str(ROOT)))}

    def check(self) -> None:
        """Unready if a process with this environment would load another bide."""
        told = subprocess.run(
            [sys.executable, "-c", "import bide; print(bide.__file__)"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **self.env},
            check=False,
        )
        if told.returncode or not Path(told.stdout.strip()).is_relative_to(self.source):
            raise Unready(
                f"{self.name}: bide is not loaded from {self.source}: {told.stdout}{told.stderr}"
            )
        compiled = [sys.executable, "-m", "compileall", "-q", str(self.source)]
        subprocess.run(compiled, stdout=subprocess.DEVNULL, check=False)


def trees(base: str, folder: Path) -> tuple[Tree, Tree]:
    """The base and the new tree, both copied into the folder, so that the location makes no difference."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}").decode().strip()
    with tarfile.open(fileobj=BytesIO(_git("archive", commit, "src"))) as archive:
        archive.extractall(folder / "base", filter="data")
    shutil.copytree(ROOT / "src", folder / "new" / "src", ignore=shutil.ignore_patterns("__pycache__"))
    found = Tree(commit[:10], folder / "base" / "src"), Tree("this tree", folder / "new" / "src")
    for tree in found:
        tree.check()
    return found


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise Unready(f"git {' '.join(arguments)}: {done.stderr.decode().strip() or 'no such revision'}")
    return done.stdout
