"""Nothing is undocumented: what the code knows and what docs/reference says are compared."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import bide
from bide.cli import COMMANDS, root
from bide.client.blocking import Client
from bide.client.client import AsyncClient
from bide.client.job import JobHandle
from bide.client.options import ClientOptions, WaitOptions
from bide.client.submission import SubmitOptions
from bide.core.errors import problems
from bide.core.wire.http import Event, JobStatus
from bide.server import config
from bide.server.engine import WARNINGS
from bide.server.http.routing import HttpOperation
from bide.server.registry import Options, Registry
from bide.server.worker.app_location import AppLocation
from bide.server.worker.context import Context
from bide.service.app import App
from bide.service.assembly import assemble
from tests.docs.pages import ROOT, pages

REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "bide"
TEXTS = {"", ".md", ".py", ".service", ".toml", ".yaml"}  # the suffixes of files that users read


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """From a heading to the next one of its rank or above."""
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, flags=re.MULTILINE)
    assert found is not None, f"there is no heading {heading!r}"
    rest = text[found.end() :]
    following = re.search(rf"^#{{1,{len(found[1])}}} ", rest, flags=re.MULTILINE)
    return rest[: following.start()] if following else rest


def codes(text: str) -> set[str]:
    """Every name in backticks, apart from what it is called with."""
    return {
        word for span in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"[\w./{}$-]+", span)
    }


# --- HTTP


def test_every_warning_is_documented() -> None:
    told = section(page("http"), "GET /readyz")
    for code, meaning in WARNINGS.items():
        assert f"| `{code}` | {meaning} |" in told


def operations(tmp_path: Path) -> list[HttpOperation]:
    service = assemble(Registry(), AppLocation("unused"), config.Config(data=tmp_path))
    return service.http.operations


def test_every_operation_is_described(tmp_path: Path) -> None:
    text = page("http")
    for operation in operations(tmp_path):
        known = codes(section(text, _chapter(text, operation)))
        for parameter in operation.parameters:
            if parameter.place != "path":
                assert parameter.name in known, f"{operation.name}: {parameter.name}"


def _chapter(text: str, operation: HttpOperation) -> str:
    """The heading above an operation's, under which it may share what is said."""
    before = text[: text.index(f"### {operation.method} {operation.path}\n")]
    return str(re.findall(r"^## (.+)$", before, flags=re.MULTILINE)[-1])


def test_no_operation_is_described_that_there_is_not(tmp_path: Path) -> None:
    described = set(re.findall(r"^### ([A-Z]+ /\S*)$", page("http"), flags=re.MULTILINE))
    assert described == {f"{o.method} {o.path}" for o in operations(tmp_path)}


def test_every_field_of_the_status_resource_is_described() -> None:
    described = codes(section(page("http"), "The status resource"))
    assert set(JobStatus.__struct_encode_fields__) - described == set()


def test_every_field_of_an_event_is_described() -> None:
    described = codes(page("events"))
    shown = set(Event.__struct_encode_fields__) - {
        "tenant"
    }  # each listener gets events of its own tenant only
    assert shown - described == set()


# --- the command line


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(root)
    for name in sorted(COMMANDS):
        command = root.get_command(context, name)
        if isinstance(command, click.Group):
            for sub in command.list_commands(context):
                found = command.get_command(context, sub)
                assert found is not None
                yield f"{name} {sub}", found
        else:
            assert command is not None
            yield name, command


@pytest.mark.parametrize(("name", "command"), [pytest.param(n, c, id=n) for n, c in commands()])
def test_every_command_is_described(name: str, command: click.Command) -> None:
    described = codes(section(page("cli"), f"bide {name}"))
    options = {opt for p in command.params if isinstance(p, click.Option) for opt in p.opts}
    assert options - described == set()
    assert {d for d in described if re.fullmatch(r"--[a-z-]+", d)} - options == set()


def test_every_variable_is_described() -> None:
    named = {
        variable
        for _, command in commands()
        for parameter in command.params
        for variable in (
            [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
        )
    }
    assert named - codes(page("settings")) == set()


def test_the_options_of_bide_itself_are_described() -> None:
    described = codes(page("cli"))
    assert {opt for p in root.params for opt in p.opts} - described == set()


# --- Python


def test_every_public_name_is_described() -> None:
    assert set(bide.__all__) - codes(page("python")) == set()


def test_every_option_of_a_kind_is_described() -> None:
    described = codes(section(page("python"), "Options of a kind"))
    assert set(Options.__annotations__) - described == set()


@pytest.mark.parametrize("options", [ClientOptions, SubmitOptions, WaitOptions])
def test_every_option_of_the_client_is_described(options: type) -> None:
    described = codes(section(page("python"), "Client"))
    assert set(options.__annotations__) - described == set()


@pytest.mark.parametrize(
    ("owner", "prefix", "heading"),
    [
        (App, "app.", "App"),
        (Context, "ctx.", "Context"),
        (Client, "", "Client"),
        (AsyncClient, "", "Client"),
        (JobHandle, "", "JobHandle"),
    ],
)
def test_every_public_member_is_described(owner: type, prefix: str, heading: str) -> None:
    described = codes(section(page("python"), heading))
    # What the rest of bide uses, and users need not.
    inner = {
        App: {"kind", "queues", "check", "counts", "shown_input"},
        Context: {
            "fetch",
            "flush",
            "latest_progress",
            "failed_step",
            "failed_breaker",
            "ask_breaker",
            "ask_breaker_async",
            "enter_breaker",
            "leave_breaker",
            "take_files",
            "finish",
            "hide",
            "hide_json",
            "job_log",
            "request_stop",
            "close",
        },
        AsyncClient: {"account"},
    }
    members = {n for n in dir(owner) if not n.startswith("_")} - inner.get(owner, set())
    assert {prefix + name for name in members} - described == set()


def test_no_page_speaks_of_a_member_that_there_is_not() -> None:
    python = [path for path in pages() if path.name not in ("javascript.md", "notify-a-browser.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in python)
    of_context = {*dir(Context), "attempt", "fence", "job_id"}
    assert set(re.findall(r"\bctx\.(\w+)", text)) - of_context == set()
    assert set(re.findall(r"\bapp\.(\w+)\(", text)) - set(dir(App)) == set()
    assert set(re.findall(r"\bclient\.(\w+)\(", text)) - set(dir(Client)) == set()


# --- JavaScript

UI = SOURCE / "ui"


def test_every_export_of_the_module_is_described_and_declared() -> None:
    module = (UI / "bide.js").read_text(encoding="utf-8")
    types = (UI / "bide.d.ts").read_text(encoding="utf-8")
    kinds = r"(?:async )?(?:class|const|function)"
    exported = set(re.findall(rf"^export {kinds}\*? (\w+)", module, flags=re.MULTILINE))
    declared = set(re.findall(rf"^export {kinds} (\w+)", types, flags=re.MULTILINE))
    assert exported == declared and len(exported) > 10
    assert exported - codes(page("javascript")) == set()


@pytest.mark.parametrize("name", ["Client", "Job", "Upload", "Budget"])
def test_every_member_of_the_module_is_described_and_declared(name: str) -> None:
    module = (UI / "bide.js").read_text(encoding="utf-8")
    types = (UI / "bide.d.ts").read_text(encoding="utf-8")
    (body,) = re.findall(rf"^export class {name} {{$(.*?)^}}$", module, flags=re.DOTALL | re.MULTILINE)
    (declaration,) = re.findall(
        rf"^export class {name}(?:<[^>]*>)? {{$(.*?)^}}$", types, flags=re.DOTALL | re.MULTILINE
    )
    methods = re.findall(r"^  (?:async )?(?:get )?\*?(\w+)\(", body, flags=re.MULTILINE)
    fields = re.findall(r"^    this\.(\w+) = ", body, flags=re.MULTILINE)
    known = set(re.findall(r"^  (?:readonly )?(\w+)[:<(]", declaration, flags=re.MULTILINE))
    inner = {"Client": {"hold", "read"}, "Job": {"path", "update"}}.get(name, set())
    members = {*methods, *fields} - inner - {"constructor"}
    assert members == known - {"constructor"}
    assert members - codes(page("javascript")) == set()


def test_the_npm_package_has_the_version_of_bide() -> None:
    assert json.loads((UI / "package.json").read_text(encoding="utf-8"))["version"] == bide.__version__


# --- settings


def test_nothing_asks_to_install_bide_from_pypi() -> None:
    """bide is not there: an extra is installed from a checkout."""
    folders = [ROOT / name for name in ("src", "docs", "examples", "deploy")]
    files = [ROOT / "README.md", *(path for folder in folders for path in folder.rglob("*"))]
    read = [
        path for path in files if path.is_file() and path.suffix in TEXTS and path.parent.name != "adr"
    ]
    wrong = re.compile(r"pip install (?:-\S+ )*['\"]?bide\b")
    assert [str(path) for path in read if wrong.search(path.read_text(encoding="utf-8"))] == []


def test_every_setting_is_described() -> None:
    described = codes(page("settings"))
    sections = [c for c in vars(config).values() if isinstance(c, type) and dataclasses.is_dataclass(c)]
    fields = {f"{c.__name__}.{f.name}" for c in sections for f in dataclasses.fields(c)}
    assert len(sections) > 5
    assert fields - described == set()


# --- errors


def test_the_problems_are_described_as_the_service_describes_them() -> None:
    rows = {
        f"| `{p.code}` | {p.status} | {'yes' if p.retryable else 'no'} | {p.meaning} | {p.remedy} |"
        for p in problems()
    }
    described = set(re.findall(r"^\| `[a-z-]+` \|.*$", page("errors"), flags=re.MULTILINE))
    assert described == rows


def test_every_code_of_a_job_error_is_described() -> None:
    described = codes(section(page("errors"), "Errors of jobs"))
    assert error_codes() - described == set()


def error_codes() -> set[str]:
    """Words in capitals in the modules that end attempts; the few that are no codes are named."""
    files = [SOURCE / "core" / "jobs" / "retry.py", *(SOURCE / "server").glob("worker/*.py")]
    files += (SOURCE / "server").glob("runner/*.py")
    words = {
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    found = {word for word in words if re.fullmatch(r"[A-Z]+(_[A-Z]+)*", word) and len(word) > 3}
    assert {"TIMEOUT", "POISONED", "CHILD_FAILED"} <= found
    return found - {"BIDE_CHILD_OF", "BIDE_LOG_FORMAT", "SC_PAGE_SIZE"}


def test_the_tests_that_the_page_on_security_names_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    paths = [*(ROOT / "tests").rglob("test_*.py"), *(SOURCE / "testing").rglob("*.py")]
    texts = [path.read_text() for path in paths]
    found = {
        name for text in texts for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.M)
    }
    assert len(named) > 40 and named <= found, named - found
    for path in re.findall(r"`(tests/[\w/]+\.py)`", page):
        assert (ROOT / path).exists(), path
