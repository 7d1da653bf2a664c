"""Transcripts of terminals in a page: ```console hour=NAME terminal=NUMBER. A test types them, and compares the screen.

| word of a block | meaning |
| --- | --- |
| `hour=loop` | the transcript that the block belongs to |
| `terminal=2` | the terminal of that hour; each is one shell |
| `exit=1` | the exit code of the last command; all others end with 0 |
| `runs` | the last command is still running when the next block begins |
| `at="3 of 10" press="y"` | in the last command, these keys are pressed when the screen shows this text; `^C` is Ctrl-C |

A block that does not begin with `$ ` continues the command that runs in its terminal. A job id in a command is the last one
that the terminal showed, as if the user had copied it. In what is compared, numbers, times, ids,
bars and runs of spaces are masked, and `...` and `…` mean what they mean in all pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import INSTANT, JOB_ID, Block, blocks, commands, fits

_MASKS = (
    (re.compile(JOB_ID), "ID"),
    (re.compile(INSTANT), "TIME"),
    (re.compile("[\u2800-\u28ff]"), " "),  # a spinner
    (re.compile("[━╸╺]+"), "━"),
    (re.compile(r"\d+(?:\.\d+)?"), "0"),
)


@dataclass(frozen=True)
class Step:
    """One command, or the rest of the output of one that was running."""

    place: str
    terminal: str
    typed: str | None
    shown: str  # with the command itself
    exit_code: int | None  # None: it is still running
    at: str | None
    press: str | None


def steps(page: Path, hour: str) -> list[Step]:
    """In the order of the page."""
    return [step for block in blocks(page) if block.hour == hour for step in _steps(block)]


def _steps(block: Block) -> list[Step]:
    terminal = block.option("terminal")
    assert terminal is not None, block.place
    last = None if "runs" in block.words else block.exit_code, block.option("at"), block.option("press")
    if not block.text.startswith("$ "):
        return [Step(block.place, terminal, None, block.text, *last)]
    found, typed = [], commands(block)
    for number, command in enumerate(typed, 1):
        shown = "\n".join(filter(None, (f"$ {command.text}", command.output)))
        end = last if number == len(typed) else (0, None, None)
        found.append(Step(block.place, terminal, command.text, shown, *end))
    return found


def shows(expected: str, lines: list[str]) -> bool:
    """Whether the screen has these lines, without empty ones."""
    return fits(_masked(expected.splitlines()), _masked(lines))


def _masked(lines: list[str]) -> str:
    text = "\n".join(line.rstrip() for line in lines if line.strip())
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text
