"""Namespaces that simulate other hosts on the network of this one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from tests.vm.outside import PORT
from tests.vmbackend.policy.guests import INSTANCE, Guest, namespace
from vmbackend.peers import Peer

HOSTS = IPv4Network("192.0.2.160/28")
OWN = str(HOSTS[1])
# Disjoint from the subnets that the tests choose for this host.
SUBNETS = (IPv4Network("10.215.8.0/24"), IPv4Network("10.215.9.0/24"))
SERVE = """
import socketserver, sys, threading
class SendAddress(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(self.client_address[0].encode())
for port in map(int, sys.argv[1:]):
    threading.Thread(target=socketserver.ThreadingTCPServer(("0.0.0.0", port), SendAddress).serve_forever).start()
print("up", flush=True)
"""
SEND = """
import socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], 0))
    s.sendto(sys.argv[1].encode(), (sys.argv[2], int(sys.argv[3])))
"""


@dataclass(frozen=True)
class OtherHost:
    """A host with one machine, at `guest`. Both answer on PORT with the address of who asks."""

    peer: Peer
    guest: str
    shell: Guest

    @property
    def address(self) -> str:
        return str(self.peer.address)


@contextmanager
def other_hosts(subnet: IPv4Network) -> Iterator[tuple[OtherHost, OtherHost]]:
    """Two hosts, which have a route to this one's subnet."""
    switch = f"{INSTANCE}sw"
    with namespace() as first, namespace() as second:
        _run("ip", "link", "add", switch, "type", "bridge")
        try:
            _run("ip", "address", "add", f"{OWN}/{HOSTS.prefixlen}", "dev", switch)
            _run("ip", "link", "set", switch, "up")
            made = tuple(_join(pid, number, subnet) for number, pid in enumerate((first, second)))
            with answering(made[0].shell, PORT), answering(made[1].shell, PORT):
                yield made[0], made[1]
        finally:
            _run("ip", "link", "delete", switch)


@contextmanager
def answering(place: Guest, *ports: int) -> Iterator[None]:
    """A process there answers on these ports with the address of who asks."""
    command = ["nsenter", "-t", str(place.pid), "-n", sys.executable, "-c", textwrap.dedent(SERVE), *map(str, ports)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "up\n"
            yield
        finally:
            server.kill()


def send_from(sender: Guest, source: str, address: str, port: int) -> None:
    """Send one datagram, which has its source as its content."""
    sender.run(SEND, source, address, port)


def _join(pid: int, number: int, subnet: IPv4Network) -> OtherHost:
    address, guests = HOSTS[2 + number], SUBNETS[number]
    ours, theirs, inside = f"{INSTANCE}h{number}", f"{INSTANCE}g{number}", ("nsenter", "-t", str(pid), "-n", "ip")
    guest = guests[5]
    for command in (
        ("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs),
        ("ip", "link", "set", ours, "master", f"{INSTANCE}sw", "up"),
        ("ip", "link", "set", theirs, "netns", str(pid)),
        (*inside, "link", "set", "lo", "up"),
        (*inside, "link", "set", theirs, "up"),
        (*inside, "address", "add", f"{address}/{HOSTS.prefixlen}", "dev", theirs),
        (*inside, "address", "add", f"{guest}/32", "dev", "lo"),
        (*inside, "route", "add", str(subnet), "via", OWN),
    ):
        _run(*command)
    return OtherHost(Peer(IPv4Address(address), guests), str(guest), Guest(str(guest), OWN, pid))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
