"""The files of deploy/ are what their programs take: systemd, Compose, and bide's own command line."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import kubernetes_validate
import pytest
import yaml

from bide.cli import root
from bide.client.blocking import Client
from tests.acceptance.serving import mounted
from tests.docs.pages import ROOT, copy_folder
from tests.servers.service import ServiceProcess

DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def _needed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"there is no {program}")
    return found


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the service manager sets them."""
    for line in (DEPLOY / "bide.env").read_text().splitlines():
        name, is_setting, value = line.partition("=")
        if is_setting and name.startswith("BIDE_"):
            monkeypatch.setenv(name, value)


def _check(arguments: list[str]) -> None:
    """That bide takes this command line; nothing is run."""
    context = click.Context(root)
    command = root.get_command(context, arguments[0])
    assert command is not None, arguments
    command.make_context(arguments[0], arguments[1:], parent=context)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text().replace("/opt/bide/bin/bide", str(Path(sys.executable).with_name("bide")))
    (tmp_path / unit.name).write_text(text.replace("User=bide", "User=root"))
    name = unit.name.replace("@.", "@1.")
    done = subprocess.run(
        [_needed("systemd-analyze"), "--man=no", "verify", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert unit.name.partition(".")[0].partition("@")[0] not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_start_what_there_is(unit: Path) -> None:
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    program, *arguments = shlex.split(line.partition("=")[2])
    assert program == "/opt/bide/bin/bide"
    _check(arguments)


def test_compose_takes_its_file() -> None:
    schema = ["--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml")]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_compose_starts_what_there_is() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name in ("service", "worker"):
        _check(services[name]["command"])


def test_kubernetes_accepts_the_manifests() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)
    programs = [
        document["spec"]["template"]["spec"]
        for document in documents
        if document["kind"] == "Deployment"
    ]
    for program in programs:
        (container,) = program["containers"]
        _check(container["args"])
        assert program["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        drain = next(int(one["value"]) for one in container["env"] if one["name"] == "BIDE_DRAIN")
        assert program["terminationGracePeriodSeconds"] > drain
    scaled = yaml.safe_load((DEPLOY / "keda.yaml").read_text())["spec"]["scaleTargetRef"]["name"]
    assert scaled in {document["metadata"]["name"] for document in documents}


def test_the_service_writes_to_its_data_folder_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: without capabilities, on a root file system that is read-only except for two folders."""
    for name in [name for name in os.environ if name.startswith("BIDE_")]:
        monkeypatch.delenv(name)
    data, temporary = tmp_path / "data", tmp_path / "tmp"
    data.mkdir()
    temporary.mkdir()
    mounts = (
        "mount --bind $data $data; mount --bind $temporary $temporary; mount -o remount,bind,ro /; "
        "export TMPDIR=$temporary HOME=/nonexistent"
    )
    service = ServiceProcess(
        tmp_path,
        "tests.apps.echo:app",
        prefix=[
            *mounted(mounts, data=data, temporary=temporary),
            "setpriv",
            "--bounding-set=-all",
            "--inh-caps=-all",
        ],
        data=data,
    )
    service.start()
    try:
        with Client(service.url) as client:
            job = client.submit("encode", {"source": "film"})
            assert job.result(timeout=60)["source"] == "film"
    finally:
        service.stop()


def test_the_image_installs_bide_from_the_checkout(tmp_path: Path) -> None:
    """What the Dockerfile copies is enough to build the package, and the package has the extras that it installs."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    for line in lines:
        *sources, target = line.removeprefix("COPY ").split() if line.startswith("COPY ") else [""]
        for source in [ROOT / name for name in sources if target.startswith("/bide/")]:
            place = tmp_path / target.lstrip("/") / ("" if source.is_dir() else source.name)
            (copy_folder if source.is_dir() else _copy)(source, place)
    (extras,) = re.findall(r"'/bide\[([\w,]+)\]'", "\n".join(lines))
    (pins,) = re.findall(r"--constraint (\S+)", "\n".join(lines))
    assert (tmp_path / pins.lstrip("/")).read_text() == (ROOT / "constraints.txt").read_text()
    (user,) = [line.removeprefix("USER ") for line in lines if line.startswith("USER ")]
    assert user not in ("root", "0") and f"--uid 1000 {user}" in "\n".join(lines)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel"],
        cwd=tmp_path / "bide",
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "bide" / "dist").glob("*.whl")
    (metadata,) = [path for path in zipfile.ZipFile(wheel).namelist() if path.endswith("/METADATA")]
    known = re.findall(r"^Provides-Extra: (\w+)", zipfile.ZipFile(wheel).read(metadata).decode(), re.M)
    assert set(extras.split(",")) <= set(known)
    shared = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-bide"]
    assert shared["read_only"] is True
    build = shared["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert ROOT / build["dockerfile"] == DEPLOY / "Dockerfile"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def test_settings_of_the_files_are_settings() -> None:
    described = (ROOT / "docs" / "reference" / "settings.md").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    names = {line.partition("=")[0] for line in (DEPLOY / "bide.env").read_text().splitlines()}
    names = {name for name in names if name.startswith("BIDE_")} | set(compose["x-bide"]["environment"])
    assert {name for name in names if f"`{name}`" not in described} == set()
