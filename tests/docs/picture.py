"""Draws docs/pictures/bars.svg from the screen of a real `bide wait`: `python -m tests.docs.picture`."""

from __future__ import annotations

import io
import re
import tempfile
from itertools import groupby
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

from tests.acceptance.vendors import KEY, Shop
from tests.terminal import Terminal
from tests.waiting import until

TARGET = Path(__file__).parents[2] / "docs" / "pictures" / "bars.svg"
COLUMNS = 96
EMPTY = pyte.screens.Char(" ")
NAMES = {"brown": "yellow"}  # what pyte calls a colour, and Rich does not


def styled(row: dict[int, pyte.screens.Char]) -> Text:
    """Cells of one colour become one piece of text."""
    cells = [row.get(column, EMPTY) for column in range(COLUMNS)]
    line = Text()
    for colour, group in groupby(cells, lambda cell: cell.fg):
        line.append("".join(cell.data for cell in group), _style(colour))
    line.rstrip()
    return line


def _style(colour: str) -> str:
    if colour == "default":
        return ""
    hexadecimal = len(colour) == 6 and all(c in "0123456789abcdef" for c in colour)
    return f"#{colour}" if hexadecimal else NAMES.get(colour, colour.replace("bright", "bright_"))


def draw() -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder, Shop(8, "{ uniform = [1.0, 8.0] }") as shop:
        (Path(folder) / "ids.txt").write_text("\n".join(shop.jobs))
        args = (
            "wait",
            "@ids.txt",
            "--api",
            "sync.so",
            "--url",
            shop.url,
            "--limit",
            "50/1s",
            "--out",
            "films",
        )
        console.print(f"[bold]$[/] bide {' '.join(args)}", highlight=False)
        env = {"SYNC_API_KEY": KEY}
        with Terminal(Path(folder), *args, env=env, columns=COLUMNS, lines=40) as terminal:
            until(lambda: any("3 of 8 ended" in line for line in terminal.lines()))
            rows = terminal.rows()
            terminal.process.kill()
    for row in rows:
        console.print(styled(row), no_wrap=True, crop=True)
    picture = console.export_svg(title="bide wait", unique_id="bars")
    # Loads nothing from outside.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw()
