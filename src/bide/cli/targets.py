"""The arguments of `bide wait`: jobs as arguments, in files and on stdin, and the options --header and --limit."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import msgspec

from bide.core.pacing.budget import read_limit

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*:\s*(.*?)\s*")


def read_targets(arguments: Iterable[str]) -> list[str]:
    """Distinct ids and URLs."""
    found: list[str] = []
    for argument in arguments:
        if argument == "-":
            found += _lines(sys.stdin.read())
        elif argument.startswith("@"):
            try:
                found += _lines(Path(argument[1:]).read_text(encoding="utf-8"))
            except FileNotFoundError:
                path = Path(argument[1:])
                hint = f"There is no file {path}. {similar_file(path)}".strip()
                raise click.UsageError(hint) from None
            except (OSError, UnicodeDecodeError) as error:
                raise click.UsageError(f"{argument}: {error}") from None
        else:
            found.append(_target(argument))
    return list(dict.fromkeys(found))


def similar_file(path: Path, pattern: str = "*") -> str:
    """A question with the most similar name in the same folder; empty if there is none."""
    others = [one.name for one in path.parent.glob(pattern)] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, others, 1)
    return f"Did you mean {path.parent / near[0]}?" if near else ""


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield _target(line.strip())


def _target(text: str) -> str:
    if not text.startswith("{"):
        return text
    try:
        line = msgspec.json.decode(text)
        return str(line.get("url") or line["jobId"])  # the output of `bide submit --api` has both
    except (msgspec.DecodeError, KeyError, AttributeError):
        raise click.UsageError(f"this line has no jobId: {text[:80]}") from None


def split_url(text: str) -> tuple[str, str]:
    """The address of a bide service, and the id of one of its jobs."""
    parts = urlsplit(text)
    before, found, after = parts.path.rpartition("/jobs/")
    job_id = unquote(after.partition("/")[0])
    if not found or not job_id:
        raise click.UsageError(f"{text}: this is not the URL of a job; it must end in /jobs/ID")
    return f"{parts.scheme}://{parts.netloc}{before}", job_id


def read_headers(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    found = {}
    for value in values:
        match = _HEADER.fullmatch(value)
        # The value is not repeated in the message: it may be a secret.
        if match is None or not match[2].isprintable():
            raise click.BadParameter("write 'NAME: VALUE'", ctx, parameter)
        found[match[1]] = match[2]
    return found


def check_rate(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        if value is not None:
            read_limit(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
    return value
