"""Commands that the user can copy from a message. They contain no secret: MASK stands for it, and a file that only the user
can read contains jobs whose URLs may have one."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from bide.client.apis.values import without_credentials

MASK = "***"
MOST_JOBS = 10  # in the words of a command
_USER = re.compile(r"(?<=://)[^/\s]+(?=@)")
_NAMED = re.compile(r"(?i)([?&][^=&\s]*(?:auth|credential|key|passw|secret|sig|token)[^=&\s]*=)[^&\s]+")


def masked(text: str) -> str:
    """A value of a flag without the passwords of URLs, and without values in a query that are named like a secret."""
    return _NAMED.sub(rf"\g<1>{MASK}", _USER.sub(MASK, text))


def command_text(ctx: click.Context, name: str, words: Iterable[str], flags: Iterable[str]) -> str:
    """`bide NAME WORDS…`, with those of the flags that the user gave to this command."""
    config = ctx.find_root().params.get("config")
    start = ["bide", *(["--config", str(config)] if config is not None else []), name]
    text = shlex.join([*start, *words, *given_flags(ctx, flags)])
    return f"{text}  (replace {MASK} by what you gave)" if MASK in text else text


def job_words(texts: Sequence[str]) -> list[str]:
    """Jobs as arguments of `bide wait`. Many of them, and URLs that may contain a secret, are written to a file."""
    if len(texts) <= MOST_JOBS and all(bare_job(text) == text for text in texts):
        return list(texts)
    try:
        fd, name = tempfile.mkstemp(prefix="bide-jobs-", suffix=".txt")  # with mode 0600
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.writelines(f"{text}\n" for text in texts)
    except OSError:
        return [MASK]
    return [f"@{name}"]


def bare_job(text: str) -> str:
    """An id, or a URL without the parts that may contain a secret."""
    return without_credentials(text) if "://" in text else text


def given_flags(ctx: click.Context, names: Iterable[str]) -> list[str]:
    """The flags of these parameters that the user gave on the command line, without secrets."""
    options = {option.name: option for option in ctx.command.params if isinstance(option, click.Option)}
    found: list[str] = []
    for name in names:
        option = options.get(name)
        if option is not None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = max(option.opts, key=len)
            for value in _values(name, ctx.params[name]):
                found += [flag] if value is None else [flag, value]
    return found


def value_text(value: Any) -> str:
    """A value as the user writes it after a flag."""
    if isinstance(value, tuple):
        return "-".join(map(value_text, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _values(name: str, value: Any) -> list[str | None]:
    if value is True:
        return [None]
    if name == "headers":  # any header may contain a secret
        return [f"{header}: {MASK}" for header in value]
    if name in ("key", "command"):  # a command may contain one in any form
        return [MASK]
    return [masked(value_text(value))]
