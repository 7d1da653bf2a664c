"""The settings of a service behind a proxy."""

from __future__ import annotations

import pytest

from bide.core.errors import SetupError
from bide.server.http.proxies import read_proxies, read_root_path


@pytest.mark.parametrize(
    ("setting", "prefix"),
    [
        ("", ""),
        ("/", ""),
        ("/bide", "/bide"),
        ("/bide/", "/bide"),
        ("/a/b-c_1.%C3%BC", "/a/b-c_1.%C3%BC"),
    ],
)
def test_a_root_path_has_no_slash_at_its_end(setting: str, prefix: str) -> None:
    assert read_root_path(setting) == prefix


@pytest.mark.parametrize("setting", ["bide", "//evil.example", "/a//b", "/a b", "/a?b", "/" + "a" * 300])
def test_what_is_no_root_path_is_rejected(setting: str) -> None:
    with pytest.raises(SetupError, match="--root-path"):
        read_root_path(setting)


def test_proxies_are_addresses_and_networks() -> None:
    proxies = read_proxies(["10.0.0.7", "192.168.0.0/16", "fd00::/8"])
    assert proxies is not None
    for address in ("10.0.0.7", "192.168.3.4", "::ffff:10.0.0.7", "fd00::1"):
        assert proxies.trusts(address), address
    for address in ("10.0.0.8", "::1", "127.0.0.1", "::ffff:10.0.0.8", "", "a.sock"):
        assert not proxies.trusts(address), address
    assert read_proxies([]) is None
    with pytest.raises(SetupError, match="--trusted-proxies 'proxy"):
        read_proxies(["proxy.example"])
