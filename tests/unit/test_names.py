"""One name for one thing: a class name occurs once in the package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import bide

PACKAGE = Path(bide.__file__).parent


def test_a_class_name_occurs_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
