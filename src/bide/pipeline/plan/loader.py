"""A pipeline file is loaded as a plan: texts are compiled, lists of values are read. Errors name the file and the line."""

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
from bide.client.apis.form import Description, Sources
from bide.client.apis.loader import Approve as ApproveDescription
from bide.client.apis.loader import located
from bide.client.apis.paths import source
from bide.client.apis.permissions import DescriptionFile, Permissions, permissions
from bide.client.apis.templates import Template, compile_body
from bide.client.apis.toml_lines import Misplaced, within
from bide.client.options import check_polling
from bide.core.errors import SetupError
from bide.core.pacing.budget import read_limit
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
RUN_NAMES = frozenset(("since", "period"))  # the run fills them in
Approve = Callable[[Permissions], None]
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s?%", re.ASCII)


@dataclass(frozen=True)
class Dataset:
    """One [[exports]] table, compiled."""

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
    """A pipeline file, compiled."""

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
        """The credential. None: the pipeline names none, so the description of the API says where it is."""
        secret = self.table.api.key
        if secret is None:
            return None
        found = read_secret(secret, os.environ, self.folder)
        if found is None:
            names = [secret.env] if isinstance(secret.env, str) else secret.env
            raise SetupError(f"no credential. Set {' or '.join(names) or 'api.key in the pipeline'}")
        return found


def load_plan(
    path: Path, url: str | None = None, approve: Approve | None = None, url_typed: bool = True
) -> PipelinePlan:
    """SetupError says what is wrong, and where. `url` replaces the URL of the pipeline.

    `approve` is called before a secret that these files name is used, or code that they name is run. It may raise.
    `url_typed` is False if `url` comes from a settings file or the environment, which the user may not have read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SetupError(f"{path} cannot be read: {reason}") from None
    return read_plan(text, path, url, approve, url_typed)


def read_plan(
    text: str,
    path: Path,
    url: str | None = None,
    approve: Approve | None = None,
    url_typed: bool = True,
) -> PipelinePlan:
    with located(text, str(path), "the pipeline", PipelineTable) as tables:
        table = msgspec.convert(tables, PipelineTable)
        if not table.exports:
            raise Misplaced(("exports",), "there is nothing to export. Add a table [[exports]]")
        path = path.absolute()
        with within("api"):
            checked = None
            if approve is not None:
                checked = _approval(table, text, path, (url, url_typed), approve)
            api = _api(table.api, path.parent, url, checked)
        with within("polling"):
            check_polling(table.polling.options())
        datasets = []
        for index, export in enumerate(table.exports):
            with within("exports", index):
                datasets.append(_dataset(export, index, path.parent))
        _check_names(datasets)
        return PipelinePlan(path, table, tuple(datasets), api)


def _approval(
    pipeline: PipelineTable, text: str, path: Path, given: tuple[str | None, bool], approve: Approve
) -> ApproveDescription:
    """A pipeline may name a secret of its own, or a URL that gets the secret of a description that comes with bide.

    `given` is the URL from outside the pipeline, and whether the user typed it.
    """
    table, (url, typed) = pipeline.api, given
    unread = url is not None and not typed

    def check(form: Description, described: str, file: str, folder: Path | None) -> None:
        own = () if table.key is None else ((table.key, path.parent),)
        elsewhere = unread or (url is None and table.url is not None)
        sent, outputs, code = _outside_access(pipeline, path.parent)
        quiet = not (own or sent or outputs or code)
        if folder is None and not elsewhere and quiet:
            return
        whole = f"{text}\n{described}"
        names = str(path) if folder is None else f"{path} with {file}"
        if unread:
            names += " and the url of the settings"
        asked = DescriptionFile(whole, names, folder or path.parent, url or table.url)
        found = permissions(form, asked, own)
        if folder is None and not elsewhere and not own:
            # The secrets go to the URL of the description that comes with bide.
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


def _outside_access(table: PipelineTable, folder: Path) -> tuple[tuple[str, ...], ...]:
    """Descriptions of the files outside the folder that are sent, of those that are written, and of the code that is run."""
    sent, outputs, code = [], [], []
    for export in table.exports:
        files = [text[1:] for text in export.each.values() if isinstance(text, str) and text[:1] == "@"]
        sent += [f"the lines of {path}" for path in _outside(folder, files)]
        outputs += _outside(folder, [export.output.path])
        secret = export.schema.get("secret")
        command = secret.get("command") if isinstance(secret, dict) else None
        if isinstance(command, list):
            code.append(f"the command `{shlex.join(str(word) for word in command)}`")
    return tuple(tuple(dict.fromkeys(words)) for words in (sent, outputs, code))


def _outside(folder: Path, files: list[str]) -> list[str]:
    """The real paths of the files that are not in the folder. A symbolic link in the folder may point outside."""
    top = os.path.realpath(folder)
    paths = [os.path.realpath(folder / file) for file in files]
    return [path for path in paths if os.path.commonpath([top, path]) != top]


def _api(
    table: ApiTable, folder: Path, url: str | None, approve: ApproveDescription | None = None
) -> Api:
    if (table.name is None) == (table.file is None):
        raise ValueError(
            "give either `name`, of an API that comes with bide, or `file`, of a description"
        )
    if table.limit is not None:
        read_limit(table.limit)
    if table.concurrent is not None and table.concurrent < 1:
        raise ValueError(f"`concurrent` must be 1 or more, not {table.concurrent}")
    if table.downloads < 1:
        raise ValueError(f"`downloads` must be 1 or more, not {table.downloads}")
    if not table.patience >= 0:
        raise ValueError(f"`patience` must be 0 or more, not {table.patience}")
    if table.name is not None and (table.name.endswith(".toml") or "/" in table.name):
        raise ValueError(f"`name` {table.name!r} is a file. Use `file` for it")
    api = load(table.name or folder / str(table.file), url or table.url, approve)
    if api.url is None:
        raise ValueError("`url` is missing: the description of the API has none")
    if not api.submits:
        raise ValueError(f"{api.name} accepts no submissions, so nothing can be exported from it")
    return api


def _dataset(table: ExportTable, index: int, folder: Path) -> Dataset:
    if not table.name or not table.name.isprintable():
        raise ValueError(f"`name` {table.name!r} is empty or has control characters")
    if table.retries < 0:
        raise ValueError(f"`retries` must be 0 or more, not {table.retries}")
    if not table.timeout > 0:
        raise ValueError(f"`timeout` must be above 0, not {table.timeout}")
    check_polling({"expected": table.expected})
    with within("exports", index, "each"):
        values = {name: _values(name, entry, folder) for name, entry in table.each.items()}
    in_input = frozenset(values) | RUN_NAMES
    elsewhere = in_input - {"since"}
    input = compile_body(table.input, in_input)
    columns = {name: Template(text, allowed=elsewhere) for name, text in table.columns.items()}
    kind = Template(table.kind, allowed=elsewhere)
    with within("exports", index, "result"):
        _check_result(table)
    with within("exports", index, "since"):
        if table.since is not None and "{since}" not in repr(table.input) + table.kind:
            raise ValueError(
                "`input` has no {since}, so the API would export everything. Add it, or remove this table"
            )
        if table.since is None and "{since}" in repr(table.input):
            raise ValueError("{since} in `input` needs a table [exports.since]")
    with within("exports", index, "schema"):
        schema = read_schema(table.schema, ("exports", index, "schema"), folder)
        if table.since is not None and table.since.by == "cursor" and not schema.cursor:
            raise ValueError('`cursor` is missing: [exports.since] needs it, unless by = "run"')
    with within("exports", index, "output"):
        path = Template(table.output.path, allowed=elsewhere)
        format = _format(table)
        if table.output.minimum_rows < 0:
            raise ValueError(f"`minimum_rows` must be 0 or more, not {table.output.minimum_rows}")
        read_max_drop(table.output.max_drop)
    return Dataset(table, kind, input, columns, path, format, schema, values)


def _values(name: str, entry: Any, folder: Path) -> list[str | int] | ListingTable:
    if not _NAME.fullmatch(name) or name in RUN_NAMES:
        raise ValueError(
            f"`{name}` cannot be the name of a value. Use lower-case letters, digits and _, but not since or period"
        )
    if isinstance(entry, ListingTable):
        if not entry.path.startswith("/"):
            raise ValueError(f"`{name}`: path {entry.path!r} must begin with a slash")
        for sources in (entry.items, entry.value):
            source(sources)
        check_pages(entry.pages)
        return entry
    if isinstance(entry, list):
        found: list[str | int] = entry
    elif entry.startswith("@"):
        found = _lines(folder / entry[1:])
    else:
        raise ValueError(f"`{name}` must be a list, @FILE, or a table with the path of a listing")
    if not found:
        raise ValueError(f"`{name}` has no values, so nothing would be exported")
    return found


def _lines(path: Path) -> list[str | int]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{path} cannot be read: {reason}") from None
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _check_result(table: ExportTable) -> None:
    result = table.result
    if result.at is not None:
        source(result.at)
    check_pages(result.pages)


def check_pages(pages: PagesTable | None) -> None:
    """ValueError if the next page could not be found."""
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
        raise ValueError("`total` needs `query`, and cannot be combined with `next`")


def read_max_drop(text: str | None) -> float | None:
    """`50%` as 0.5. ValueError if it is not a percentage."""
    if text is None:
        return None
    match = _PERCENT.fullmatch(text)
    if match is None or not float(match[1]) <= 100:
        raise ValueError(f'`max_drop` {text!r} is not a percentage from 0% to 100%, such as "50%"')
    return float(match[1]) / 100


def _format(table: ExportTable) -> str:
    format = table.output.format or SUFFIXES.get(Path(table.output.path).suffix.lower())
    if format is None:
        raise ValueError("`format` is missing, and no format has the suffix of `path`")
    if table.output.table is not None and format != "sqlite":
        raise ValueError(f"`table` is for the format sqlite, not {format}. Remove it")
    if table.output.table is None and format == "sqlite":
        raise ValueError("`table` is missing: the format sqlite needs the name of a table")
    return format


def _check_names(datasets: list[Dataset]) -> None:
    seen: dict[str, str] = {}
    for index, dataset in enumerate(datasets):
        with within("exports", index):
            if dataset.name in seen:
                raise ValueError(
                    f"another dataset has the `name` {dataset.name!r}, too. Rename one of them"
                )
        with within("exports", index, "output"):
            place = f"{dataset.table.output.path} {dataset.table.output.table or ''}"
            if place in seen.values():
                raise ValueError(
                    f"another dataset has the `path` {dataset.table.output.path!r}, too. Change one of them"
                )
        seen[dataset.name] = place
