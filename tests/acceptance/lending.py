"""Lets `pip install` find packages without the network: those of this Python that the command asks for, and no others.

They are linked into the venv before the command runs, so that pip finds them installed. So a package that bide imports but
does not declare is missing in the venv, like the packages of the extras that the user does not install.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import ROOT

OWN = "bide"
INSTALL = "pip install "
SCRIPT = "#!{python}\nimport sys\nfrom {module} import {name}\nsys.exit({name}())\n"


@contextmanager
def lending(venv: Path, typed: str | None) -> Iterator[None]:
    """Around a command that the user types. The packages that build bide are there only while pip runs."""
    if typed is None or not typed.startswith(INSTALL):
        yield
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    words = shlex.split(typed.removeprefix(INSTALL), comments=True)
    wanted = [OWN + word[1:] if word.startswith(".") else word for word in words]
    needed = _closure(wanted, project["project"])
    building = _closure(project["build-system"]["requires"], {}) if wanted != words else {}
    for dist in (building | needed).values():
        _link(venv, dist)
    yield
    for name in building.keys() - needed.keys():
        for link in _links(venv, building[name]):
            link.unlink()


def _closure(names: Iterable[str], project: dict[str, object]) -> dict[str, Distribution]:
    """The packages that these need, by name. bide is not among them: pip installs it."""
    left, seen = [(Requirement(name), "") for name in names], set[str]()
    found: dict[str, Distribution] = {}
    while left:
        requirement, extra = left.pop()
        if str(requirement) + extra in seen or not _applies(requirement, extra):
            continue
        seen.add(str(requirement) + extra)
        name = canonicalize_name(requirement.name)
        if name == OWN:
            left += [(Requirement(one), "") for one in _declared(project, requirement.extras)]
            continue
        found[name] = distribution(name)
        for one in found[name].requires or ():
            left += [(Requirement(one), chosen) for chosen in ("", *requirement.extras)]
    return found


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _declared(project: dict[str, object], extras: Iterable[str]) -> list[str]:
    dependencies, optional = project["dependencies"], project["optional-dependencies"]
    assert isinstance(dependencies, list) and isinstance(optional, dict)
    return [*dependencies, *(one for extra in extras for one in optional[extra])]


def _link(venv: Path, dist: Distribution) -> None:
    for link in _links(venv, dist):
        if not link.exists():
            link.symlink_to(Path(str(dist.locate_file(link.name))))
    for entry in dist.entry_points.select(group="console_scripts"):
        script = venv / "bin" / entry.name
        if not script.exists():
            script.write_text(
                SCRIPT.format(python=venv / "bin" / "python", module=entry.module, name=entry.attr)
            )
            script.chmod(0o755)


def _links(venv: Path, dist: Distribution) -> list[Path]:
    (packages,) = (venv / "lib").glob("python*/site-packages")
    tops = {PurePosixPath(str(file)).parts[0] for file in dist.files or ()}
    return [packages / top for top in sorted(tops - {"..", "__pycache__"})]
