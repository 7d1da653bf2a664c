"""The pages whose examples are run, and what a fenced block in them means.

| block | what is done with it |
| --- | --- |
| ```python title="tasks.py" | written into the page's folder; with the word `add`, put at the end of that file |
| ```python | run, in one namespace for the whole page |
| ```text output | compared with what the python block before it printed |
| ```console | each `$ command` is run in one shell for the whole page, what follows is compared with its output |
| ```console exit=3 | the same, and the last command ends with this code |
| ```console hour=loop | part of a transcript that an acceptance test types: `transcripts` has the rules |
| ```json, ```toml | parsed; with a title also written |
| ```text, ```mermaid, ```nginx, ```html | shown only |
| ```js title="a.mjs" | written, beside installed bide.js and standardwebhooks |
| ```html title="a.html" | written |

In what is compared, `...` or `…` stands for anything in a line, a line of only that for any lines, and a job id, an
instant and a run of spaces for any other. `bide serve`, `bide worker`, `celery -A`, `uvicorn`, `python lms.py`,
`python shop.py`, `node receiver.mjs`, `python -m http.server` and `python -m bide.lab.vendor` run in the background
until the page ends or serves anew.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
LANGUAGES = {"python", "js", "console", "json", "toml", "text", "mermaid", "nginx", "html"}
JOB_ID = "[0-9A-HJKMNP-TV-Z]{26}"
INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"
_WILD = re.compile(rf"(?P<any>\.\.\.|…)|(?P<id>\b{JOB_ID}\b)|(?P<at>{INSTANT})")
_PATTERNS = {"id": JOB_ID, "at": INSTANT}


@dataclass(frozen=True)
class Block:
    """One fenced block: where it is, what it is called, what it holds."""

    page: str
    line: int
    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.split() else ""

    @property
    def words(self) -> list[str]:
        return self.info.split()[1:]

    @property
    def title(self) -> str | None:
        return self.option("title")

    @property
    def exit_code(self) -> int:
        return int(self.option("exit") or 0)

    @property
    def hour(self) -> str | None:
        """The transcript that the block is part of."""
        return self.option("hour")

    def option(self, name: str) -> str | None:
        """The value of name=value or name="some value"."""
        found = re.search(rf'\b{name}=(?:"([^"]*)"|(\S+))', self.info)
        return None if found is None else found[1] or found[2]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A line that a reader types, and what the page says comes back; None when it says nothing."""

    text: str
    output: str | None


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("examples/**/README.md")),
    ]


def copy_folder(source: Path, target: Path) -> None:
    """Without bytecode: other test processes write it at the same time, under names that vanish again."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    return [
        Block(name(page), token.map[0] + 1, token.info.strip(), token.content)
        for token in tokens
        if token.type in ("fence", "code_block") and token.map is not None
    ]


def commands(block: Block) -> list[Command]:
    """A `$` begins a command, a backslash at the end of its line continues it."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif not found:
            raise ValueError(f"{block.place}: a console block begins with `$ `, not with {line!r}")
        elif found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        else:
            found[-1][1].append(line)
    return [Command("\n".join(typed), "\n".join(shown) if shown else None) for typed, shown in found]


def fits(expected: str, output: str) -> bool:
    """Whether the output is what the page shows, as far as it shows it."""
    pattern = "".join(_line(line) for line in expected.strip("\n").split("\n"))
    return re.fullmatch(pattern, output.strip("\n") + "\n") is not None


def _line(line: str) -> str:
    if line.strip() in ("...", "…"):
        return r"(?:.*\n)*?"
    pieces, at = [""], 0
    for match in _WILD.finditer(line):
        pieces[-1] += re.escape(line[at : match.start()])
        if match.lastgroup == "any":
            pieces.append("")
        else:
            pieces[-1] += _PATTERNS[match.lastgroup or ""]
        at = match.end()
    pieces[-1] += re.escape(line[at:])
    # Columns are as wide as what is in them today.
    first, *others = [re.sub(r"(?:\\ )+", "[ ]+", piece) for piece in pieces]
    # Each piece is found once, at its first place: with many of them, trying all places would take hours.
    inner = "".join(f"(?>.*?{piece})" for piece in others[:-1])
    return first + inner + (f".*{others[-1]}" if others else "") + r"[ ]*\n"
