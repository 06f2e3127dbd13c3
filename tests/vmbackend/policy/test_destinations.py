"""Destinations that a guest reaches, and for how long, tested by traffic."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.vm.client import until
from tests.vm.outside import OTHER_PORT, PORT, Outside
from tests.vmbackend.policy.guests import CONNECT, Guest, apply_policy, connects
from vmbackend.libvirt.network import Network

pytestmark = pytest.mark.host


def test_internet_access_changes_at_once(network: Network, guest: Guest, world: Outside) -> None:
    apply_policy(network, guest)
    assert guest.run(CONNECT, world.address, PORT) == world.host
    assert guest.resolve("www.example.com") == world.address
    apply_policy(network, guest, allow_internet=False)
    assert not guest.reaches(world.address)
    assert guest.resolve("www.example.com") == "refused"


def test_without_the_internet_only_listed_networks_are_reached(network: Network, guest: Guest, world: Outside) -> None:
    apply_policy(network, guest, allow_internet=False, egress=(f"{world.second}/32", "2001:db8::/32"))
    assert guest.reaches(world.second)
    assert not guest.reaches(world.address)


def test_overlapping_egress_networks_are_accepted(network: Network, guest: Guest, world: Outside) -> None:
    apply_policy(
        network, guest, allow_internet=False, egress=("198.51.100.0/24", f"{world.second}/32", "198.51.0.0/16")
    )
    assert guest.reaches(world.second)


def test_only_listed_ports_are_reached_with_and_without_the_internet(
    network: Network, guest: Guest, world: Outside
) -> None:
    for policy in ({}, {"allow_internet": False, "egress": (f"{world.address}/32",)}):
        apply_policy(network, guest, **policy, egress_ports=(OTHER_PORT,))  # type: ignore[arg-type]
        assert guest.reaches(world.address, OTHER_PORT)
        assert not guest.reaches(world.address, PORT)
    apply_policy(network, guest, egress_ports=(OTHER_PORT,))
    assert guest.resolve("www.example.com") == world.address


STAY_CONNECTED = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3) as c:
    print("open", flush=True)
    for line in sys.stdin:
        c.sendall(b"x")
        try:
            print(c.recv(1).decode() or "closed", flush=True)
        except OSError as error:
            print("cut", flush=True)
"""


ECHO_PORT = 7077


@pytest.fixture
def echo(world: Outside) -> Iterator[None]:
    """A server on the simulated internet that echoes single bytes."""
    code = f"""
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while got := self.request.recv(1):
            self.request.sendall(got)
socketserver.ThreadingTCPServer(("0.0.0.0", {ECHO_PORT}), Echo).serve_forever()
"""
    enter = ("nsenter", "-t", str(world.pid), "-n")
    server = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *enter, sys.executable, "-c", code])
    try:
        until(lambda: connects(world.address, ECHO_PORT), 10, "the echo answers")
        yield
    finally:
        server.kill()
        server.wait()


@contextmanager
def open_connection(guest: Guest, address: str) -> Iterator[Callable[[], str]]:
    """A connection from a guest; each call sends a byte and returns the result."""
    process = subprocess.Popen(
        ["nsenter", "-t", str(guest.pid), "-n", sys.executable, "-c", STAY_CONNECTED, address, str(ECHO_PORT)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"

        def exchange() -> str:
            process.stdin.write("go\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return process.stdout.readline().strip()  # type: ignore[union-attr]

        yield exchange
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_an_open_connection_survives_expiry_and_restart_and_ends_with_the_policy(
    network: Network, guest: Guest, world: Outside, echo: None
) -> None:
    port = apply_policy(network, guest, allow_internet=False, egress=("api.example.com",))
    guest.resolve("api.example.com")
    with open_connection(guest, world.address) as exchange:
        assert exchange() == "x"
        for turn in (0, 1):
            network.expire_learned_addresses(guest.ip, turn)
        assert exchange() == "x"
        network.install([port])
        assert exchange() == "x"
        more = apply_policy(
            network, guest, before=1, allow_internet=False, egress=("api.example.com", "www.example.com")
        )
        assert exchange() == "x"
        apply_policy(
            network, guest, generation=2, before=more.generation, allow_internet=False, egress=("www.example.com",)
        )
        assert exchange() == "cut"
