"""Frames to the bridge's reserved addresses (01:80:c2:00:00:0X) of a hostile guest: the kernel does not bridge them."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmbackend.libvirt.firewall import NetworkPort, mac_for
from vmbackend.libvirt.network import Network
from vmbackend.policy import NetworkPolicy
from vmbackend.uids import UidRange, default_first_uid

pytest.importorskip("libvirt")
from .libvirt_factory import free_subnet

pytestmark = pytest.mark.host
INSTANCE = "fe0003"
GUEST, NEIGHBOUR = 5, 6
LLDP = 0x0E
# All but pause frames, which every device drops.
RESERVED = [0, *range(2, 16)]
FORGED = "203.0.113.9"
Send = Callable[..., None]


def tool(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def address(network: Network, number: int) -> str:
    return str(network._settings.subnet.network_address + number)


def encoded_mac(ip: str) -> bytes:
    return bytes.fromhex(mac_for(ip).replace(":", ""))


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """With two guests: veth pairs, what is sent on one end comes out of a tap."""
    subnet = free_subnet()
    settings: Any = SimpleNamespace(
        instance=INSTANCE,
        subnet=subnet,
        gateway=str(subnet.network_address + 1),
        address="",
        dns=("192.0.2.53",),
        machines_dir=tmp_path,
        allowed_private=(),
        uids=UidRange(default_first_uid(subnet), subnet),
    )
    made = Network(settings)
    try:
        made.install([])
        for number in (GUEST, NEIGHBOUR):
            ip = address(made, number)
            tap, inside = made.tap_for(ip), f"{INSTANCE}i{number}"
            tool("ip", "link", "add", tap, "type", "veth", "peer", "name", inside)
            tool("ip", "link", "set", tap, "master", made.bridge, "up")
            tool("ip", "link", "set", inside, "up")
            made.attach(NetworkPort(f"m{number}", ip, NetworkPolicy()))
            made.connect(ip)
        yield made
    finally:
        made.uninstall()


@pytest.fixture
def send(network: Network) -> Iterator[Send]:
    """Send a frame to a reserved address as the guest, with its own source address or another."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((f"{INSTANCE}i{GUEST}", 0))

        def send_frame(reserved: int, kind: int, payload: bytes, source: int = GUEST) -> None:
            to = bytes.fromhex("0180c20000") + bytes([reserved])
            raw.send(to + encoded_mac(address(network, source)) + struct.pack("!H", kind) + payload.ljust(46, b"\0"))

        yield send_frame


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def udp_packet(source: str, target: str, port: int) -> bytes:
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 29, 1, 0, 64, 17, 0) + ends
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + struct.pack("!HHHH", 9, port, 9, 0) + b"x"


def router_announcement(mac: bytes) -> bytes:
    source, everyone = (socket.inet_pton(socket.AF_INET6, ip) for ip in ("fe80::5", "ff02::1"))
    body = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + b"\1\1" + mac
    pseudo = source + everyone + struct.pack("!IHBB", len(body), 0, 0, socket.IPPROTO_ICMPV6)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    return struct.pack("!IHBB", 6 << 28, len(body), socket.IPPROTO_ICMPV6, 255) + source + everyone + body


def arp_question(mac: bytes, source: str, target: str) -> bytes:
    asked = socket.inet_aton(source) + bytes(6) + socket.inet_aton(target)
    return struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + asked


def test_they_move_no_forwarding_entry_of_another_guest(network: Network, send: Send):
    mac, tap = mac_for(address(network, NEIGHBOUR)), network.tap_for(address(network, NEIGHBOUR))
    for reserved in RESERVED:
        send(reserved, 0x88CC, b"", source=NEIGHBOUR)
    time.sleep(0.1)
    entries = json.loads(tool("bridge", "-j", "fdb", "show", "br", network.bridge))
    assert [entry["ifname"] for entry in entries if entry["mac"] == mac] == [tap]


@pytest.mark.parametrize("forged", [False, True], ids=["own source", "forged source"])
def test_they_reach_no_service_of_the_host(network: Network, send: Send, forged: bool):
    gateway = network._settings.gateway
    with socket.socket(type=socket.SOCK_DGRAM) as service:
        service.bind((gateway, 0))
        service.settimeout(0.3)
        source = FORGED if forged else address(network, GUEST)
        for reserved in RESERVED:
            send(reserved, 0x0800, udp_packet(source, gateway, service.getsockname()[1]))
        with pytest.raises(TimeoutError):
            service.recv(100)


def test_they_make_no_neighbour_of_the_host(network: Network, send: Send):
    mac = encoded_mac(address(network, GUEST))
    for reserved in RESERVED:
        send(reserved, 0x0806, arp_question(mac, address(network, 77), network._settings.gateway))
    time.sleep(0.1)
    assert address(network, 77) not in {entry["dst"] for entry in json.loads(tool("ip", "-j", "neigh"))}


def test_no_guest_becomes_the_hosts_ipv6_router(network: Network, send: Send):
    time.sleep(2)  # until an interface with IPv6 has its own address
    for reserved in RESERVED:
        send(reserved, 0x86DD, router_announcement(encoded_mac(address(network, GUEST))))
    time.sleep(0.3)
    routes = json.loads(tool("ip", "-6", "-j", "route", "show", "default") or "[]")
    assert not [route for route in routes if route["dev"] == network.tap_for(address(network, GUEST))]


def test_a_tap_whose_machine_is_unknown_is_configured_too(network: Network, send: Send):
    network.install([NetworkPort("m6", address(network, NEIGHBOUR), NetworkPolicy())])
    test_they_move_no_forwarding_entry_of_another_guest(network, send)


def test_what_a_tap_receives_itself_is_dropped(network: Network, send: Send):
    """Also of a tap that is no port of the bridge any more."""
    tool("ip", "link", "set", network.tap_for(address(network, GUEST)), "nomaster")
    test_they_reach_no_service_of_the_host(network, send, forged=False)
