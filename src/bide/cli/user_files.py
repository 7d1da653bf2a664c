"""Files in the user's configuration folder that bide writes. Only their owner can read and change them."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any


def user_file(name: str) -> Path:
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    base = given if given.is_absolute() else Path.home() / ".config"
    return base / "bide" / name


def write_user_file(path: Path, content: Any) -> None:
    """Replace the file by JSON."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}-")  # created with mode 0600
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=0, sort_keys=True)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
