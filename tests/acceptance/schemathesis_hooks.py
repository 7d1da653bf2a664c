"""What schemathesis must know about bide: imported by the tests, and by its command line (SCHEMATHESIS_HOOKS)."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis.core.parameters import ParameterLocation
from schemathesis.transport.serialization import Binary

schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Leave out forms whose only mistake is not visible in what is sent.

    In a form, `true` in place of a file is a file with these four bytes, and in place of a list of files a list of one.
    """
    if case.media_type != "multipart/form-data" or not isinstance(case.body, dict):
        return True
    if case.meta is None or not case.meta.is_negative_at(ParameterLocation.BODY):
        return True
    parts = [value for name, value in case.body.items() if name != "job"]
    values = [item for part in parts for item in (part if isinstance(part, list) else [part])]
    return all(isinstance(value, bytes | Binary) for value in values)
