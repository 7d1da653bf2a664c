"""Webhooks reach public addresses only: in URLs, after redirects, and when a name resolves to another address later."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web

from bide.server.webhooks.addresses import Addresses, AddressRejected, is_public
from bide.server.webhooks.sender import WebhookSender
from bide.server.webhooks.signature import new_secret
from tests.receiver import Receiver

METADATA = "http://169.254.169.254/latest/meta-data"


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
        *("169.254.169.254", "169.254.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1"),
        *(
            "198.18.0.1",
            "192.0.0.192",
            "168.63.129.16",
            "::",
            "::1",
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "fd00:ec2::254",
        ),
        *("ff02::1", "fec0::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"),
        *("::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001::1", "100::1"),
    ],
)
def test_other_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


class Names:
    """A name server whose answers change with each look-up."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int, family: Any) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://[::1]:8642/", METADATA, "http://[::ffff:10.0.0.1]/"),
        "http://0.0.0.0/",
    ],
)
async def test_an_address_in_a_new_url_is_checked(url: str) -> None:
    with pytest.raises(ValueError, match="is not a public address"):
        await Addresses(allow_private=False).check_url(url)
    await Addresses(allow_private=True).check_url(url)


async def test_the_names_of_a_new_url_are_checked() -> None:
    for answer in (["127.0.0.1"], ["1.1.1.1", "10.0.0.1"]):
        with pytest.raises(ValueError, match="is not a public address"):
            await Addresses(allow_private=False, look_up=Names(answer)).check_url("http://a.example/")
    await Addresses(allow_private=False, look_up=Names(["1.1.1.1"])).check_url("http://a.example/")

    async def unknown(host: str, port: int, family: Any) -> list[tuple[Any, ...]]:
        raise socket.gaierror("unknown")

    await Addresses(allow_private=False, look_up=unknown).check_url("http://a.example/")


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"])
async def test_other_forms_of_loopback_are_resolved_and_rejected(host: str) -> None:
    with pytest.raises(ValueError, match="is not a public address"):
        await Addresses(allow_private=False).check_url(f"http://{host}/")


# --- sending


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver(secrets=[new_secret()]).serving() as receiver:
        yield receiver


class Lenient(Addresses):
    """Allows the loopback address of the receiver as if it were public."""

    def __init__(self, names: Names, allowed: Sequence[str]) -> None:
        super().__init__(allow_private=False, look_up=names)
        self._allowed = allowed

    def check(self, address: str) -> None:
        if address not in self._allowed:
            super().check(address)


async def send(addresses: Addresses, url: str, secret: str) -> tuple[int | None, str | None]:
    sender = WebhookSender(addresses, 5.0, lambda: 1_800_000_000.0)
    try:
        outcome = await sender.send(url, [secret], "evt_a-1", b'{"data":{}}')
        return outcome.status, outcome.error
    finally:
        await sender.close()


async def test_a_name_that_resolves_to_loopback_later_is_rejected(receiver: Receiver) -> None:
    # The first look-up, when the webhook was created, had a public address.
    names = Names(["1.1.1.1"], ["127.0.0.1"])
    addresses = Addresses(allow_private=False, look_up=names)
    url = receiver.url.replace("127.0.0.1", "rebinding.example")
    await addresses.check_url(url)
    status, error = await send(addresses, url, receiver.secrets[0])
    assert (status, receiver.messages) == (None, [])
    assert error is not None
    assert "127.0.0.1 is not a public address" in error


async def test_the_connection_is_made_to_the_address_that_was_checked(receiver: Receiver) -> None:
    # 127.0.0.2 counts as public here. A second look-up would return an address where nothing listens.
    names = Names(["127.0.0.1"], ["127.0.0.3"])
    addresses = Lenient(names, ["127.0.0.1"])
    url = receiver.url.replace("127.0.0.1", "checked.example")
    assert await send(addresses, url, receiver.secrets[0]) == (204, None)
    assert names.asked == ["checked.example"]


@pytest.mark.parametrize("target", [METADATA, "http://[fd00:ec2::254]/", "http://10.0.0.1/"])
async def test_a_redirect_to_a_private_address_is_rejected(receiver: Receiver, target: str) -> None:
    receiver.answer = lambda message: web.Response(status=307, headers={"location": target})
    addresses = Lenient(Names(["127.0.0.1"]), ["127.0.0.1"])
    status, error = await send(addresses, receiver.url, receiver.secrets[0])
    assert (status, len(receiver.messages)) == (None, 1)
    assert error is not None
    assert "is not a public address" in error


async def test_a_redirect_to_a_name_of_a_private_address_is_rejected(receiver: Receiver) -> None:
    location = {"location": "http://inside.example/"}
    receiver.answer = lambda message: web.Response(status=308, headers=location)
    addresses = Lenient(Names(["10.0.0.1"]), ["127.0.0.1"])
    status, error = await send(addresses, receiver.url, receiver.secrets[0])
    assert status is None
    assert error is not None
    assert "10.0.0.1 is not a public address" in error


async def test_redirects_of_the_same_method_are_followed_a_few_times(receiver: Receiver) -> None:
    addresses = Lenient(Names(["127.0.0.1"]), ["127.0.0.1"])
    receiver.answer = lambda m: (
        web.Response(status=307, headers={"location": "/moved"}) if m.path == "/hook" else None
    )
    assert await send(addresses, receiver.url, receiver.secrets[0]) == (204, None)
    assert [m.path for m in receiver.messages] == ["/hook", "/moved"]
    receiver.answer = lambda m: web.Response(status=307, headers={"location": "/hook"})
    status, error = await send(addresses, receiver.url, receiver.secrets[0])
    assert (status, error) == (None, "ValueError: the endpoint redirects more than 3 times")
    receiver.answer = lambda m: web.Response(status=302, headers={"location": "/moved"})
    assert await send(addresses, receiver.url, receiver.secrets[0]) == (302, None)


def test_a_socket_is_made_only_for_an_allowed_address() -> None:
    addresses = Addresses(allow_private=False)
    with pytest.raises(AddressRejected):
        addresses.make_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))
    addresses.make_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("1.1.1.1", 80))).close()
