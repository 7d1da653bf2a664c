"""The log of a service or a worker on stderr, as text or as JSON."""

from __future__ import annotations

import logging
import os
import sys
from typing import Literal

import click

from bide.core.json_log import JsonFormatter

LogFormat = Literal["text", "json"]
VARIABLE = "BIDE_LOG_FORMAT"
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def announce(text: str, log_format: LogFormat) -> None:
    """Print a line on stderr, at any level of the log."""
    if log_format == "json":
        text = JsonFormatter().format(
            logging.LogRecord("bide", logging.INFO, "", 0, "%s", (text,), None)
        )
    click.echo(text, err=True)


def log_to_stderr(log_format: LogFormat, level: str) -> None:
    """Configure the root logger. The handler processes find the format in their environment."""
    os.environ[VARIABLE] = log_format
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.captureWarnings(log_format == "json")
    logging.basicConfig(level=level.upper(), handlers=[handler])
