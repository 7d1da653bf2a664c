"""Log records as JSON."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from bide.cli.output import LogPrinter, Terminal
from bide.core.jobs.record import Job
from bide.core.json_log import JsonFormatter, about_job


def formatted(text: str, *args: Any, extra: dict[str, Any] | None = None, **more: Any) -> Any:
    record = logging.getLogger("bide.test").makeRecord(
        "bide.test", logging.WARNING, "file", 1, text, args, more.get("exc_info"), extra=extra
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_a_record_has_the_fields_of_its_job() -> None:
    job = Job("01J", "ocr", "q", 0.0, 0.0, tenant="acme", trace_id="a" * 32, attempt=2)
    found = formatted("job %s failed", job.id, extra=about_job(job))
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "bide.test",
        "message": "job 01J failed",
        "jobId": "01J",
        "kind": "ocr",
        "attempt": 2,
        "tenant": "acme",
        "traceId": "a" * 32,
    }


def test_an_exception_is_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        found = formatted("failed", exc_info=sys.exc_info())
    assert "ValueError: two\nlines" in found["exception"]


def test_a_value_that_json_does_not_have_is_text() -> None:
    assert formatted("hello", extra={"tenant": Path("a")})["tenant"] == "a"


def test_commands_print_notes_and_records_as_json(capsys: Any) -> None:
    terminal = Terminal("json")
    terminal.note("1 done")
    record = logging.LogRecord("bide.client", logging.WARNING, "", 0, "%s", ("slow",), None)
    record.api = "sync.so"
    LogPrinter(terminal, verbose=True).emit(record)
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["level"], first["message"]) == ("info", "1 done")
    assert (second["level"], second["message"], second["api"]) == ("warning", "slow", "sync.so")
