"""Which hosts and origins are the service's own."""

from __future__ import annotations

import pytest

from bide.core.errors import SetupError
from bide.server.http.hosts import is_same_host, read_names, split_host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("localhost", ("localhost", None)),
        ("LocalHost:8642", ("localhost", 8642)),
        ("jobs.example.org.", ("jobs.example.org", None)),
        ("jobs.example.org.:80", ("jobs.example.org", 80)),
        ("127.0.0.1:", ("127.0.0.1", None)),
        ("[::1]:8642", ("[::1]", 8642)),
        ("[0:0:0:0:0:0:0:1]", ("[::1]", None)),
        ("::1", None),
        ("[::1", None),
        ("[::zz]", None),
        ("", None),
        (".", None),
        (":80", None),
        ("a, b", None),
        ("localhost:80:80", None),
        ("localhost/evil", None),
        ("evil@localhost", None),
        ("localhost evil", None),
        ("localhost\t", None),
        ("loc\u212alhost", None),
        ("localhost\u0662", None),
        ("localhost:\u0662", None),
        ("a" * 301, None),
    ],
)
def test_one_host_in_one_form(text: str, host: tuple[str, int | None] | None) -> None:
    assert split_host(text) == host


def test_names_in_a_setting() -> None:
    names = ("Jobs.Example.org", "10.0.0.5", "::1", "[fe80::1]")
    assert read_names(names) == {"jobs.example.org", "10.0.0.5", "[::1]", "[fe80::1]"}


@pytest.mark.parametrize("wrong", ["https://a.example", "a.example:80", "*.example.org", "*", "", "a b"])
def test_what_is_no_name_is_refused(wrong: str) -> None:
    with pytest.raises(SetupError, match="--trusted-hosts"):
        read_names((wrong,))


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://127.0.0.1:8642", "127.0.0.1:8642", True),
        ("http://localhost:8642", "LOCALHOST:8642", True),
        ("https://jobs.example", "jobs.example", True),  # behind a proxy that ends TLS
        ("http://jobs.example", "jobs.example", True),
        ("https://jobs.example", "jobs.example:443", True),
        ("http://jobs.example:80", "jobs.example", True),
        ("https://jobs.example", "jobs.example:80", False),
        ("http://127.0.0.1:9000", "127.0.0.1:8642", False),
        ("http://127.0.0.1", "127.0.0.1:8642", False),
        ("http://jobs.example:8080", "jobs.example", False),
        ("http://localhost:8642", "127.0.0.1:8642", False),
        ("http://evil.example", "jobs.example", False),
        ("http://jobs.example.evil.example", "jobs.example", False),
        ("http://jobs.example@evil.example", "jobs.example", False),
        ("http://jobs.example/", "jobs.example", False),  # an origin has no path
        ("null", "jobs.example", False),
        ("null", "null", False),
        ("", "jobs.example", False),
        ("file://", "jobs.example", False),
        ("chrome-extension://jobs.example", "jobs.example", False),
        ("http://jobs.example", None, False),
        ("http://jobs.example", "jobs.example, jobs.example", False),
    ],
)
def test_a_page_of_the_same_host(origin: str, host: str | None, same: bool) -> None:
    assert is_same_host(origin, host) is same
