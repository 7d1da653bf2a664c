"""Every example of README.md, docs/ and examples/ runs, and shows what it says it shows."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import psycopg
import pytest

from tests.docs.pages import ROOT, Block, blocks, commands, copy_folder, fits, name, pages
from tests.docs.runner import BROKER_PORT, DATABASE_PORT, STORAGE_PORT, first_line, run
from tests.servers.ports import HOST
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.servers.swift import Swift
from tests.servers.warm import warm

DATABASE, BROKER = "@127.0.0.1:5432/jobs", "redis://127.0.0.1:6379"
CREATES_DATABASE = "$ createdb "  # such a page starts without a database
STORAGE = "endpoint=http://127.0.0.1:9000"
# Blocks that are not run: page, the block's first line, and why. Nothing else is left out.
NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {
        "$ make demo": "make is what runs this test; the demo has a test of its own",
        "$ python3 -m venv .venv && . .venv/bin/activate": "installs from the network",
    },
    "docs/howto/move-an-upload-endpoint.md": {
        "$ pip install fastapi uvicorn python-multipart": "installs from the network",
    },
    "docs/howto/javascript.md": {
        "$ npm install ../bide/src/bide/ui": "the runner has installed it",
    },
    "examples/video/README.md": {
        "$ pip install '.[demo]'": "installs from the network",
    },
    "examples/ocr/README.md": {
        "$ pip install '.[server]' pillow": "installs from the network",
    },
    "examples/tenants/README.md": {
        "$ pip install '.[server]' fastapi uvicorn": "installs from the network",
    },
}

# Files of the repository that a page asks its reader to copy into the folder.
TAKEN = {
    "docs/howto/autoscale.md": ["deploy/workers.py"],
    "docs/tutorial/grades.md": ["examples/grades/lms.py"],
}


# Programs that a page needs and that pip does not install: where one is missing its page is skipped, and fails in the CI.
NEEDED = {
    "examples/ocr/README.md": ("tesseract", "apt install tesseract-ocr"),
    "docs/howto/javascript.md": ("node", "apt install nodejs"),
    "docs/howto/receive-webhooks.md": ("node", "apt install nodejs"),
}


def is_howto(page: Path) -> bool:
    return name(page).startswith("docs/howto/")


@pytest.mark.parametrize("page", [page for page in pages() if not is_howto(page)], ids=name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The pages of docs/howto are in test_howto_examples.py, so that both halves can run at the same time."""
    run_page(page, tmp_path, request)


def run_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    program, remedy = NEEDED.get(name(page), ("", ""))
    if program and shutil.which(program) is None:
        reason = f"there is no {program}: {remedy}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    folder, logs = tmp_path / "page", tmp_path / "logs"
    folder.mkdir()
    logs.mkdir()
    if name(page).startswith("examples/"):  # its reader has the repository
        copy_folder(page.parent, folder / page.parent.relative_to(ROOT))
    for file in TAKEN.get(name(page), ()):
        shutil.copy(ROOT / file, folder)
    text = page.read_text(encoding="utf-8")
    servers: dict[str, int] = {}
    settings: dict[str, str] = {}
    if CREATES_DATABASE in text:
        server: Postgres = request.getfixturevalue("new_postgres")
        servers[DATABASE_PORT] = server.port
        settings = {"PGHOST": HOST, "PGPORT": str(server.port), "PGUSER": server.admin}
        server.require_password("bide")
        programs = [
            _typing_password(logs),
            warm().folder,
            Path(sys.executable).parent,
            os.environ["PATH"],
        ]
        settings["PATH"] = ":".join(map(str, programs))
    elif DATABASE in text:
        servers[DATABASE_PORT] = _database(request)
    if BROKER in text:
        servers[BROKER_PORT] = _broker(request)
    if STORAGE in text:
        storage = _storage(request)
        servers[STORAGE_PORT] = storage.port
        settings = {**settings, **storage.environment}
    run(blocks(page), folder, logs, NOT_RUN.get(name(page), {}), servers=servers, settings=settings)


def _typing_password(folder: Path) -> Path:
    """A folder with a `createuser` whose reader types the password of the page twice."""
    program = folder / "createuser"
    typed = "the password that you typed\\n"
    program.write_text(f"#!/bin/sh\nprintf '{typed * 2}' | {shutil.which('createuser')} \"$@\"\n")
    program.chmod(0o755)
    return folder


def _storage(request: pytest.FixtureRequest) -> Swift:
    """A server with the bucket that pages speak of."""
    server: Swift = request.getfixturevalue("swift")
    server.make_bucket("files")
    return server


def _database(request: pytest.FixtureRequest) -> int:
    """The port of a server that has the empty database that pages speak of."""
    server: Postgres = request.getfixturevalue("postgres")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS jobs WITH (FORCE)")
        connection.execute("CREATE DATABASE jobs")
    return server.port


def _broker(request: pytest.FixtureRequest) -> int:
    """The port of a Redis with nothing in it."""
    server: RedisServer = request.getfixturevalue("redis_server")
    server.flush()
    return server.port


@pytest.mark.parametrize("page", sorted(NOT_RUN))
def test_what_is_not_run_is_still_there(page: str) -> None:
    found = {first_line(block) for block in blocks(ROOT / page)}
    assert set(NOT_RUN[page]) <= found


@pytest.mark.parametrize("page", pages(), ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        goal = page if not path else (page.parent / path)
        if not goal.exists() or (anchor and goal.suffix == ".md" and anchor not in _anchors(goal)):
            broken.append(target)
    assert broken == []


def test_the_modules_that_pages_name_exist() -> None:
    """In `path/module.py` and in the README's tree."""
    source = ROOT / "src" / "bide"
    text = "".join(p.read_text(encoding="utf-8") for p in [*pages(), ROOT / "CONTRIBUTING.md"])
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    homes = (ROOT, ROOT / "src", source, source / "server")
    assert {n for n in named if not any((home / n).exists() for home in homes)} == set()
    (tree,) = (b.text for b in blocks(ROOT / "README.md") if b.text.startswith("src/bide/"))
    known = {path.name for path in source.rglob("*")}
    assert {n for n in re.findall(r"\b\w+\.py\b", tree) if n not in known} == set()


def _anchors(page: Path) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def test_a_machine_without_curl_can_run_the_examples(tmp_path: Path) -> None:
    page = ROOT / "docs" / "howto" / "mount-in-fastapi-or-starlette.md"
    folder, logs = tmp_path / "page", tmp_path / "logs"
    folder.mkdir()
    logs.mkdir()
    run(blocks(page), folder, logs, {}, curl=False)


def _block(info: str, text: str) -> Block:
    return Block("page.md", 1, info, text)


def test_a_block_in_an_unknown_language_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="knows no 'yaml' block"):
        run([_block("yaml", "a: 1\n")], tmp_path, tmp_path, {})


def test_another_output_than_the_page_shows_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="`echo one` printed\none"):
        run([_block("console", "$ echo one\ntwo\n")], tmp_path, tmp_path, {})


def test_another_exit_code_than_the_page_says_fails(tmp_path: Path) -> None:
    run([_block("console exit=3", "$ (exit 3)\n")], tmp_path, tmp_path, {})
    with pytest.raises(AssertionError, match="ended with 3"):
        run([_block("console", "$ (exit 3)\n")], tmp_path, tmp_path, {})


def test_a_python_block_that_raises_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run([_block("python", "one = 1\n"), _block("python", "one / 0\n")], tmp_path, tmp_path, {})


def test_what_the_wildcards_stand_for() -> None:
    assert fits('{"jobId":"01…",...}', '{"jobId":"01JAB","status":"DONE"}')
    assert fits("first\n...\nlast", "first\na\nb\nlast")
    assert fits(
        "01JC3X8M0V5T6Q7R8S9A0B1C2D at 2030-01-31T12:00:00Z", f"{'0' * 26} at 2026-07-01T00:00:00.123Z"
    )
    assert not fits("first\n...\nlast", "first\na")
    assert fits("...a...b...a", "xa b b aa") and not fits("...a...b...a", "xa b b b")
    assert not fits("...,".join("abcdefghij"), "a,b,c,d,e,f,g,h,i," * 400)  # in less than hours
    assert not fits("a", "a\nb")


def test_a_command_may_go_on_over_several_lines() -> None:
    (command,) = commands(_block("console", "$ echo a \\\n  b\na b\n"))
    assert (command.text, command.output) == ("echo a \\\n  b", "a b")
