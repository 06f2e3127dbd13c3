"""Which addresses count as public, and how names are checked."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_network
from typing import Any

import pytest

from outbound import addresses
from outbound.addresses import AddressRefused, is_own, is_public, is_within, public_addresses

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
    "2606:4700::5efe:808:808",
]
NOT_PUBLIC = [
    *("127.0.0.1", "10.0.0.7", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "0.1.2.3"),
    *("192.0.0.8", "192.0.0.9", "192.0.2.1", "198.18.0.1", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1"),
    *(
        "255.255.255.255",
        "192.88.99.1",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ),
    # Forms that carry an IPv4 address: compatible, mapped, translated, 6to4, Teredo, ISATAP of a private network.
    *("::7f00:1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1"),
    *("64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "2002:7f00:1::", "2002:808:808::1"),
    # The metadata server of a cloud at a public address.
    *("168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110"),
    *("2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1", "5f00::1", "64:ff9b:1:7f00:0:100::"),
    *("2001:0:53aa:64c::1", "2001:db8::1", "3fff::1", "100::1", "fe80::5efe:127.0.0.1", "4000::1"),
    *("", "localhost", "127.1", "0x7f.1", "2130706433", "8.8.8.8/32", "[::1]"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_all_other_addresses_are_not(address: str) -> None:
    assert not is_public(address)


def test_addresses_of_this_host_are_known() -> None:
    for address in ("127.0.0.1", "127.8.8.8", "::1", "255.255.255.255"):
        assert is_own(address)
    for address in ("8.8.8.8", "2606:4700:4700::1111"):
        assert not is_own(address)


def test_a_host_that_cannot_ask_for_its_addresses_refuses_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", no_descriptor)
    assert is_own("8.8.8.8")


def test_addresses_of_networks_are_found_in_every_form() -> None:
    networks = [ip_network("8.8.8.0/24"), ip_network("2606:4700::/32")]
    refused = ("8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700:4700::1111")
    assert [address for address in refused if not is_within(address, networks)] == []
    assert not is_within("1.1.1.1", networks)


def _answers(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_a_name_is_refused_if_one_of_its_addresses_is_not_public(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, "8.8.8.8", "8.8.4.4", "8.8.8.8")
    assert public_addresses("registry.test", 443) == ["8.8.8.8", "8.8.4.4"]
    _answers(monkeypatch, "8.8.8.8", "10.0.0.1")
    with pytest.raises(AddressRefused):
        public_addresses("registry.test", 443)


def test_a_public_address_of_this_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "is_own", lambda address: address == "8.8.8.8")
    with pytest.raises(AddressRefused):
        public_addresses("8.8.8.8", 443)


@pytest.mark.parametrize("name", ["nothing.invalid", "a" * 300 + ".test", "\udcff.test"])
def test_a_name_that_does_not_resolve_is_refused(name: str) -> None:
    with pytest.raises(AddressRefused):
        public_addresses(name, 443)
