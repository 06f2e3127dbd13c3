"""Connections to a guest, and cleanup of a detached one."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.vmbackend.policy.guests import NOTHING, Guest, apply_policy, connects
from vmbackend.libvirt import sockets
from vmbackend.libvirt.firewall import NetworkPort
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.network_maintainer import NetworkMaintainer
from vmbackend.libvirt.record import MachineDir, Record, machine_dirs
from vmbackend.libvirt.resolver import _running
from vmbackend.policy import NetworkPolicy

pytestmark = pytest.mark.host


SERVE = """
import socket, sys
listeners = []
for port in map(int, sys.argv[1:]):
    s = socket.socket(); s.bind(("0.0.0.0", port)); s.listen(); listeners.append(s)
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def serving(guest: Guest, *ports: int) -> Iterator[None]:
    """A process in the guest listens on these ports."""
    command = ["nsenter", "-t", str(guest.pid), "-n", sys.executable, "-c", SERVE, *map(str, ports)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "up\n"
            yield
        finally:
            server.kill()


def test_the_host_reaches_listed_ports_only(network: Network, guest: Guest) -> None:
    ports = [22, 8080, 9090, 10022]
    with serving(guest, *ports):
        apply_policy(network, guest)
        assert [port for port in ports if connects(guest.ip, port)] == ports
        apply_policy(network, guest, ingress_ports=(8080,))
        assert [port for port in ports if connects(guest.ip, port)] == [22, 8080, 10022]
        # Replies to its own requests still arrive.
        assert guest.resolve("www.example.com") != NOTHING


def test_the_hosts_connections_to_a_guest_are_counted_and_ended(network: Network, guest: Guest) -> None:
    apply_policy(network, guest)
    with serving(guest, 22, 8080, 9090), ExitStack() as stack:
        open_ = {port: stack.enter_context(socket.create_connection((guest.ip, port), 2)) for port in (22, 8080, 9090)}
        assert sockets.count_connections(guest.ip) == 2
        sockets.close_connections(guest.ip, [8080, 4444])
        assert sockets.count_connections(guest.ip) == 1
        open_[8080].settimeout(2)
        with pytest.raises(ConnectionError):
            open_[8080].recv(1)
        open_[9090].sendall(b"x")


@pytest.mark.parametrize("family", ["inet", "bridge"])
def test_a_removed_firewall_table_is_reinstalled(network: Network, guest: Guest, family: str) -> None:
    policy = NetworkPolicy(ingress_ports=(8080,))
    folder = network._settings.machines_dir
    MachineDir(folder, "m5").write_record(Record("m5", guest.ip, "sha256:x", 1, 128, 64, policy))
    network.attach(NetworkPort("m5", guest.ip, policy))
    before = _tables(network)
    maintainer = NetworkMaintainer(network, lambda: machine_dirs(folder), lambda: None)
    maintainer.maintain_once(0)
    assert _tables(network) == before
    subprocess.run(["nft", "delete", "table", family, network.table], check=True)
    with serving(guest, 8080, 9090):
        maintainer.maintain_once(1)
        assert [port for port in (8080, 9090) if connects(guest.ip, port)] == [8080]
    assert _tables(network) == before


def test_detach_removes_every_rule_of_a_machine(network: Network, guest: Guest) -> None:
    before = _tables(network)
    apply_policy(network, guest, allow_internet=False, egress=("one.test", "192.0.2.0/24"), ingress_ports=(80,))
    assert _tables(network) != before
    for _ in range(2):
        network.detach(guest.ip, "m5")
        assert _tables(network) == before
    assert [conf.parent.name for _, conf in _running(network._settings.machines_dir)] == [".network"]


def _tables(network: Network) -> str:
    """Without counters and times."""
    shown = [
        subprocess.run(["nft", "-s", "list", "table", family, network.table], capture_output=True, text=True).stdout
        for family in ("inet", "bridge")
    ]
    return "".join(shown).replace("elements = {  }", "")
