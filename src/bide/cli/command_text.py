"""Commands that the user can copy from a message. They contain no secret: MASK stands for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

import click
from click.core import ParameterSource

MASK = "***"
_USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+(?!\$)[^\s'\"]+")
_NAMED = re.compile(
    r"(?i)((?:key|token|secret|passw(?:or)?d|signature|authorization)[\w-]*['\"]?\s*[=:]\s*)"
    r"(?!\$|bearer\b|basic\b)[^\s&'\"]+"
)


def masked(text: str) -> str:
    """The text without passwords of URLs and without values that are named like a secret. `$NAME` is not a secret."""
    return _NAMED.sub(rf"\g<1>{MASK}", _SCHEME.sub(rf"\g<1> {MASK}", _USER.sub(MASK, text)))


def command_text(ctx: click.Context, name: str, words: Iterable[str], flags: Iterable[str]) -> str:
    """`bide NAME WORDS…`, with those of the flags that the user gave to this command."""
    config = ctx.find_root().params.get("config")
    start = ["bide", *(["--config", str(config)] if config is not None else []), name]
    return shlex.join([*start, *words, *given_flags(ctx, flags)])


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


def _values(name: str, value: Any) -> list[str | None]:
    if value is True:
        return [None]
    if name == "headers":  # any header may contain a secret
        return [f"{header}: {MASK}" for header in value]
    if name == "key":
        return [MASK]
    return [masked(str(value))]
