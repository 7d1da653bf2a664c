"""Runs scripts in Node that import the module bide.js of this repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.acceptance.test_upload_clients import need

MODULE = Path(__file__).parents[1] / "src" / "bide" / "ui" / "bide.js"
PREFACE = f"""
import * as bide from {json.dumps(MODULE.as_uri())};
const {{ Budget, Client, poll, BideError, JobFailed, ProblemError, Unreachable, WaitTimeout }} = bide;
const [base, ...args] = process.argv.slice(1);
const say = (value) => console.log(JSON.stringify(value));
"""


def run_node(script: str, base: str, *args: str, timeout: float = 60.0) -> list[Any]:
    """Returns what the script passes to `say`. `base` is the URL of a server, `args` are strings."""
    command = [need("node"), "--input-type=module", "--eval", PREFACE + script, "--", base, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stderr == "", done.stderr  # no warning
    return [json.loads(line) for line in done.stdout.splitlines()]
