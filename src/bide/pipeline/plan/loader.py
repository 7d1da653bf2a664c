"""A pipeline file into a Plan: every text compiled, every list of values read. An error names the file and the line."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bide.client.apis import Api, load
from bide.client.apis.auth import read_secret
from bide.client.apis.demands import Demands, DescriptionFile, demands
from bide.client.apis.form import Description, Sources
from bide.client.apis.lines import Misplaced, within
from bide.client.apis.loading import Approve as ApproveDescription
from bide.client.apis.loading import located
from bide.client.apis.paths import source
from bide.client.apis.templates import Template, compile_body
from bide.core.budget import read_limit
from bide.core.errors import SetupError
from bide.pipeline.plan.form import ApiTable, ExportTable, ListingTable, PagesTable, PipelineTable
from bide.pipeline.plan.schema import Schema, read_schema

SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".sqlite": "sqlite",
    ".db": "sqlite",
}
GIVEN = frozenset(("since", "period"))  # names that are filled in by the run
Approve = Callable[[Demands], None]
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s?%", re.ASCII)


@dataclass(frozen=True)
class Dataset:
    """One [[exports]], ready to be filled in."""

    table: ExportTable
    kind: Template
    input: Any
    columns: dict[str, Template]
    path: Template
    format: str
    schema: Schema
    values: dict[str, list[str | int] | ListingTable]

    @property
    def name(self) -> str:
        return self.table.name


@dataclass(frozen=True)
class PipelinePlan:
    """A whole pipeline."""

    file: Path
    table: PipelineTable
    datasets: tuple[Dataset, ...]
    api: Api

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def name(self) -> str:
        return self.table.name or self.file.stem

    def key(self) -> str | None:
        """The credential, where the pipeline says; None: where the API's description says."""
        place = self.table.api.key
        if place is None:
            return None
        found = read_secret(place, os.environ, self.folder)
        if found is None:
            names = [place.env] if isinstance(place.env, str) else place.env
            raise SetupError(f"no credential: set {' or '.join(names) or 'api.key in the pipeline'}")
        return found


def load_plan(
    path: Path, url: str | None = None, approve: Approve | None = None, url_typed: bool = True
) -> PipelinePlan:
    """At another address than the pipeline's, where one is given. SetupError says what is wrong, and where.

    `approve` is called before a secret that these files name is used, or code of theirs is run, and may raise.
    `url_typed` is False if `url` comes from a settings file or the environment, which the user may not have read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SetupError(f"{path} cannot be read: {reason}") from None
    return read_plan(text, path, url, approve, url_typed)


def read_plan(
    text: str,
    path: Path,
    url: str | None = None,
    approve: Approve | None = None,
    url_typed: bool = True,
) -> PipelinePlan:
    with located(text, str(path), "the pipeline") as tables:
        table = msgspec.convert(tables, PipelineTable)
        if not table.exports:
            raise Misplaced(("exports",), "there is nothing to export: add a table [[exports]]")
        path = path.absolute()
        with within("api"):
            checked = None
            if approve is not None:
                checked = _approval(table, text, path, (url, url_typed), approve)
            api = _api(table.api, path.parent, url, checked)
        datasets = []
        for index, export in enumerate(table.exports):
            with within("exports", index):
                datasets.append(_dataset(export, index, path.parent))
        _check_names(datasets)
        return PipelinePlan(path, table, tuple(datasets), api)


def _approval(
    pipeline: PipelineTable, text: str, path: Path, given: tuple[str | None, bool], approve: Approve
) -> ApproveDescription:
    """A pipeline may name a secret of its own, and an address for that of a description that comes with bide.

    `given` is the address from outside the pipeline, and whether the user typed it.
    """
    table, (url, typed) = pipeline.api, given
    unread = url is not None and not typed

    def check(form: Description, described: str, file: str, folder: Path | None) -> None:
        own = () if table.key is None else ((table.key, path.parent),)
        elsewhere = unread or (url is None and table.url is not None)
        sent, outputs, code = _beyond(pipeline, path.parent)
        quiet = not (own or sent or outputs or code)
        if folder is None and not elsewhere and quiet:
            return
        whole = f"{text}\n{described}"
        names = str(path) if folder is None else f"{path} with {file}"
        if unread:
            names += " and the url of the settings"
        asked = DescriptionFile(whole, names, folder or path.parent, url or table.url)
        found = demands(form, asked, own)
        if (
            folder is None and not elsewhere and not own
        ):  # the secrets go where the shipped description says
            found = replace(found, secrets=(), code=())
        digest = hashlib.sha256(msgspec.json.encode([found.digest, sent, outputs, code])).hexdigest()
        approve(
            replace(
                found,
                digest=digest,
                secrets=(*found.secrets, *sent),
                code=(*found.code, *code),
                outputs=outputs,
            )
        )

    return check


def _beyond(table: PipelineTable, folder: Path) -> tuple[tuple[str, ...], ...]:
    """In words: files outside the folder that are sent, files outside it that are written, and code that is run."""
    sent, outputs, code = [], [], []
    for export in table.exports:
        files = [told[1:] for told in export.each.values() if isinstance(told, str) and told[:1] == "@"]
        sent += [f"the lines of {place}" for place in _outside(folder, files)]
        outputs += _outside(folder, [export.output.path])
        secret = export.schema.get("secret")
        command = secret.get("command") if isinstance(secret, dict) else None
        if isinstance(command, list):
            code.append(f"the command `{shlex.join(str(word) for word in command)}`")
    return tuple(tuple(dict.fromkeys(words)) for words in (sent, outputs, code))


def _outside(folder: Path, files: list[str]) -> list[str]:
    """The real paths of those that are not in the folder. A link in the folder may lead out of it."""
    top = os.path.realpath(folder)
    places = [os.path.realpath(folder / file) for file in files]
    return [place for place in places if os.path.commonpath([top, place]) != top]


def _api(
    table: ApiTable, folder: Path, url: str | None, approve: ApproveDescription | None = None
) -> Api:
    if (table.name is None) == (table.file is None):
        raise ValueError("give `name`, of an API that comes with bide, or `file`, of a description")
    if table.limit is not None:
        read_limit(table.limit)
    if table.concurrent is not None and table.concurrent < 1:
        raise ValueError("`concurrent` must be 1 or more")
    if table.downloads < 1 or not table.patience >= 0:
        raise ValueError("`downloads` must be 1 or more, `patience` not negative")
    if table.name is not None and (table.name.endswith(".toml") or "/" in table.name):
        raise ValueError(f"`name` {table.name!r} is a file: call it `file`")
    api = load(table.name or folder / str(table.file), url or table.url, approve)
    if api.url is None:
        raise ValueError("`url` is missing: the description does not say where the API is")
    if not api.submits:
        raise ValueError(f"{api.name} takes no submissions: nothing can be exported from it")
    return api


def _dataset(table: ExportTable, index: int, folder: Path) -> Dataset:
    if not table.name or not table.name.isprintable():
        raise ValueError("`name` must be text")
    if table.retries < 0 or not table.timeout > 0:
        raise ValueError("`retries` must not be negative, `timeout` above 0")
    with within("exports", index, "each"):
        values = {name: _values(name, told, folder) for name, told in table.each.items()}
    asked = frozenset(values) | GIVEN
    placed = asked - {"since"}
    input = compile_body(table.input, asked)
    columns = {name: Template(text, allowed=placed) for name, text in table.columns.items()}
    kind = Template(table.kind, allowed=placed)
    with within("exports", index, "result"):
        _check_result(table)
    with within("exports", index, "since"):
        if table.since is not None and "{since}" not in repr(table.input) + table.kind:
            raise ValueError("nothing of `input` has {since}: the API would not be told")
        if table.since is None and "{since}" in repr(table.input):
            raise ValueError("{since} in `input` needs a table [exports.since]")
    with within("exports", index, "schema"):
        schema = read_schema(table.schema, ("exports", index, "schema"), folder)
        if table.since is not None and table.since.by == "cursor" and not schema.cursor:
            raise ValueError('`cursor` is missing: [exports.since] needs it, or by = "run"')
    with within("exports", index, "output"):
        path = Template(table.output.path, allowed=placed)
        format = _format(table)
        if table.output.minimum_rows < 0:
            raise ValueError("`minimum_rows` must be 0 or more")
        read_max_drop(table.output.max_drop)
    return Dataset(table, kind, input, columns, path, format, schema, values)


def _values(name: str, told: Any, folder: Path) -> list[str | int] | ListingTable:
    if not _NAME.fullmatch(name) or name in GIVEN:
        raise ValueError(
            f"`{name}` cannot be the name of a value: use small letters, not since or period"
        )
    if isinstance(told, ListingTable):
        if not told.path.startswith("/"):
            raise ValueError(f"`{name}`: path {told.path!r} must begin with a slash")
        for sources in (told.items, told.value):
            source(sources)
        check_pages(told.pages)
        return told
    if isinstance(told, list):
        found: list[str | int] = told
    elif told.startswith("@"):
        found = _lines(folder / told[1:])
    else:
        raise ValueError(f"`{name}` must be a list, @FILE, or a table with the path of a listing")
    if not found:
        raise ValueError(f"`{name}` has no values: nothing would be exported")
    return found


def _lines(path: Path) -> list[str | int]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"{path} cannot be read: {reason}") from None
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _check_result(table: ExportTable) -> None:
    result = table.result
    if result.at is not None:
        source(result.at)
    check_pages(result.pages)


def check_pages(pages: PagesTable | None) -> None:
    """ValueError when a page could not be found by it."""
    if pages is None:
        return
    sources: list[Sources] = [s for s in (pages.next, pages.total) if s is not None]
    for one in sources:
        source(one)
    if pages.link and (sources or pages.query or pages.may_be_absent):
        raise ValueError(
            "`link` cannot be combined with `next`, `query`, `total` or `may_be_absent`. Remove them."
        )
    if not (pages.link or pages.next or pages.query):
        raise ValueError("`pages` needs `link`, `next` or `query`")
    if pages.total is not None and (pages.next is not None or pages.query is None):
        raise ValueError("`total` needs `query`, and no `next`")


def read_max_drop(text: str | None) -> float | None:
    """`50%` as 0.5; ValueError when it is no percentage."""
    if text is None:
        return None
    match = _PERCENT.fullmatch(text)
    if match is None or not float(match[1]) <= 100:
        raise ValueError(f'`max_drop` {text!r} is not a percentage from 0% to 100%: write "50%"')
    return float(match[1]) / 100


def _format(table: ExportTable) -> str:
    format = table.output.format or SUFFIXES.get(Path(table.output.path).suffix.lower())
    if format is None:
        raise ValueError("`format` is missing, and the path's ending tells none")
    if (table.output.table is not None) != (format == "sqlite"):
        raise ValueError("`table` is for SQLite, and SQLite needs it")
    return format


def _check_names(datasets: list[Dataset]) -> None:
    seen: dict[str, str] = {}
    for index, dataset in enumerate(datasets):
        with within("exports", index):
            if dataset.name in seen:
                raise ValueError(f"`name` {dataset.name!r} is there twice")
        with within("exports", index, "output"):
            place = f"{dataset.table.output.path} {dataset.table.output.table or ''}"
            if place in seen.values():
                raise ValueError(f"`path` {dataset.table.output.path!r} is another dataset's too")
        seen[dataset.name] = place
