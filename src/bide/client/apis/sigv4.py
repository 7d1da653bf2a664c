"""Signs requests to AWS with botocore, with the credentials that the AWS command line would use.

The region is `options.region` of the description, or the one in the host name, or that of the AWS configuration.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from bide.client.apis.answers import Call
from bide.client.apis.form import Description
from bide.core.errors import SetupError

_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com")


class SigV4:
    """The hook of the descriptions of AWS; `options.service` is the signing name of the service."""

    def __init__(self, form: Description) -> None:
        self._name = form.name
        self._service = str(form.options.get("service") or form.name.removeprefix("aws-"))
        self._region = form.options.get("region")
        self._session: Any = None

    def sign(self, call: Call, now: float) -> Call:
        """Sign a request. `now` is not used, because botocore uses its own clock."""
        session = self._session = self._session or self._open()
        credentials = session.get_credentials()
        if credentials is None:
            raise SetupError(
                f"{self._name} needs AWS credentials. Set AWS_ACCESS_KEY_ID, or run `aws configure`."
            )
        region = (
            self._region or _region(call.url) or session.get_config_variable("region") or "us-east-1"
        )
        request = import_module("botocore.awsrequest").AWSRequest(
            method=call.method, url=call.url, data=call.body, headers=dict(call.headers)
        )
        sign = import_module("botocore.auth").SigV4Auth
        sign(credentials.get_frozen_credentials(), self._service, region).add_auth(request)
        headers = {str(name): str(value) for name, value in request.headers.items()}
        return Call(call.method, call.url, headers, call.body, True, call.known, call.hold)

    def _open(self) -> Any:
        try:
            return import_module("botocore.session").get_session()
        except ImportError:
            raise SetupError(f"{self._name} needs botocore. Run: pip install botocore") from None


def _region(url: str) -> str | None:
    match = _REGION.search(urlsplit(url).hostname or "")
    return match[1] if match else None
