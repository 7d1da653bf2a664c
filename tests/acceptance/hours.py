"""A user who types a transcript of the docs in real terminals, while following README and guides literally."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.docs.pages import JOB_ID, Block, commands
from tests.docs.transcripts import Step, shows
from tests.terminal import SHELL, Terminal
from tests.waiting import until

CTRL_C = "\x03"
PROMPT = "$ "
HOME = "/home/ana"  # as the page writes the user's home
TIMEOUT = 60.0
COLUMNS = 1500  # more than any line has, so that the terminal wraps none


class Guide:
    """What a page asks its reader to save and to type, in this order."""

    def __init__(self, found: Iterable[Block]) -> None:
        self._left: list[Block | str] = []
        for block in found:
            if block.title is not None:
                self._left.append(block)
            elif block.language == "console":
                self._left += [command.text for command in commands(block)]
            assert block.language != "python" or block.title, f"{block.place}: in which file does it go?"

    @property
    def left(self) -> list[str]:
        """The commands that were not typed yet."""
        return [one for one in self._left if isinstance(one, str)]

    def type(self, text: str) -> list[Block]:
        """Returns the files to save first, if this is the next command of the page."""
        if text not in self.left[:1]:
            return []
        at = self._left.index(text)
        files = [one for one in self._left[:at] if isinstance(one, Block)]
        del self._left[: at + 1]
        return files


class Shell:
    """One terminal with bash. Each prompt sets the title to the exit code of the command before it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        env = {"PS1": rf"\[\e]0;$?\a\]{PROMPT}", "PS2": ""}
        self._terminal = Terminal(
            folder,
            env=env,
            columns=COLUMNS,
            lines=100,
            snapshots=False,
            program=SHELL,
            environment=environment,
        )
        self._seen = 0  # lines of the running command
        self.last_id = ""  # the last job id that an ended command showed

    def __enter__(self) -> Self:
        try:
            self.end()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._terminal.__exit__(None, None, None)

    @property
    def folder(self) -> Path:
        return Path(f"/proc/{self._terminal.process.pid}/cwd").readlink()

    def type(self, keys: str) -> None:
        self._terminal.type(keys)

    def lines(self) -> list[str]:
        """The lines of the command that no step has seen yet."""
        return self._terminal.lines()[self._seen :]

    def see(self) -> None:
        """The next step is about the lines after these."""
        self._seen = len(self._terminal.lines())

    def end(self) -> tuple[list[str], int]:
        """Waits for the prompt. Returns the lines of the command, and its exit code."""
        until(self._at_prompt, timeout=TIMEOUT)
        shown = self.lines()
        shown[-1] = shown[-1].removesuffix(PROMPT.strip())  # the output may end without a line end
        code = int(self._terminal.title)
        self._seen = 0
        self._terminal.clear(PROMPT)
        self.last_id = [self.last_id, *re.findall(JOB_ID, "\n".join(shown))][-1]
        return shown, code

    def _at_prompt(self) -> bool:
        if not self._terminal.title:
            return False
        return any(line.endswith(PROMPT.strip()) for line in self._terminal.lines()[-1:])


class Hour:
    """The terminals of one user. `ports`: as the pages write them, and as they are."""

    def __init__(
        self,
        home: Path,
        environment: Mapping[str, str],
        guide: Guide,
        ports: Mapping[str, int],
    ) -> None:
        self._home = home
        self._environment = environment
        self._guide = guide
        self._names = {**{shown: str(real) for shown, real in ports.items()}, HOME: str(home)}
        self._shells: dict[str, Shell] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self, step: Step) -> None:
        """AssertionError when the terminal shows something else than the page."""
        shell = self._shells.get(step.terminal) or self._open(step.terminal)
        if step.typed is not None:
            for file in self._guide.type(step.typed):
                self._save(file, step.terminal)
            typed = re.sub(JOB_ID, shell.last_id, self._here(step.typed))
            shell.type(typed + "\n")
        if step.press is not None:
            self._press(step, shell, step.at or "", CTRL_C if step.press == "^C" else f"{step.press}\n")
        if step.exit_code is None:
            self._running(step, shell)
        else:
            self._ended(step, shell)

    def _open(self, terminal: str) -> Shell:
        shell = self._stack.enter_context(Shell(self._home, self._environment))
        self._shells[terminal] = shell
        return shell

    def _press(self, step: Step, shell: Shell, text: str, keys: str) -> None:
        try:
            until(lambda: text in "\n".join(shell.lines()), timeout=TIMEOUT)
        except AssertionError:
            raise AssertionError(self._difference(step, shell.lines())) from None
        shell.type(keys)

    def _running(self, step: Step, shell: Shell) -> None:
        """Waits until the command has printed what the page shows."""
        try:
            until(lambda: shows(step.shown, self._shown(shell.lines())), timeout=TIMEOUT)
        except AssertionError:
            raise AssertionError(self._difference(step, shell.lines())) from None
        shell.see()

    def _ended(self, step: Step, shell: Shell) -> None:
        try:
            lines, code = shell.end()
        except AssertionError:
            raise AssertionError(self._difference(step, shell.lines())) from None
        assert shows(step.shown, self._shown(lines)), self._difference(step, lines)
        assert code == step.exit_code, f"{step.place}: `{step.typed}` ended with {code}"

    def _difference(self, step: Step, lines: list[str]) -> str:
        shown = "\n".join(self._shown(lines))
        return f"{step.place}: the terminal shows\n{shown}\n--- and not\n{step.shown}"

    def _save(self, file: Block, terminal: str) -> None:
        """As an editor does, in the folder of the terminal."""
        assert file.title is not None
        path = self._shells[terminal].folder / file.title
        before = path.read_text() + "\n\n" if "add" in file.words else ""
        path.write_text(before + self._here(file.text))

    def _here(self, text: str) -> str:
        for shown, real in self._names.items():
            text = text.replace(shown, real)
        return text

    def _shown(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines)
        for shown, real in self._names.items():
            text = text.replace(real, shown)
        return text.splitlines()
