"""One name for one thing: a class name occurs once in the package, and modules are nouns."""

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


# Modules are nouns. These gerunds are nouns of the field: each names an activity, and the module is all of it.
GERUNDS = {
    "blocking",  # as in "blocking client"
    "listing",
    "local_signing",
    "pacing",
    "polling",
    "retrying",  # the one retry loop
    "routing",
    "s3_signing",
    "staging",
    "testing",
    "timing",
}
# Each names a collection of unrelated things.
FORBIDDEN = {"base", "common", "helpers", "manager", "misc", "utils"}


def test_module_names_are_nouns() -> None:
    names = {path.stem for path in PACKAGE.rglob("*.py")} | {
        path.parent.name for path in PACKAGE.rglob("__init__.py")
    }
    assert {name for name in names if name.endswith("ing")} == GERUNDS
    assert not names & FORBIDDEN
