"""Other hosts reach a guest as its own host does; guests reach nothing of other hosts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.vm.outside import PORT, Outside
from tests.vmbackend.policy.guests import Guest, apply_policy
from tests.vmbackend.policy.peer_hosts import HOSTS, OWN, OtherHost, answering, other_hosts, send_from
from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.firewall import NetworkPort
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.network_maintainer import NetworkMaintainer
from vmbackend.libvirt.record import MachineDir, Record, machine_dirs
from vmbackend.peers import Peer
from vmbackend.policy import NetworkPolicy

pytestmark = pytest.mark.host

Hosts = tuple[OtherHost, OtherHost]
PORTS = [22, 8080, 9090, 10022]
LISTEN = """
import socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as s:
    s.bind(("0.0.0.0", int(sys.argv[1])))
    print("up", flush=True)
    while (got := s.recv(64)) != b"end":
        print(got.decode(), flush=True)
"""


@pytest.fixture
def hosts(network: Network) -> Iterator[Hosts]:
    with other_hosts(network._settings.subnet) as made:
        yield made


@pytest.fixture
def peer(network: Network, hosts: Hosts) -> OtherHost:
    """The first of two other hosts, applied; the second one is a stranger."""
    network.apply_peers([hosts[0].peer])
    return hosts[0]


def reached_from(host: OtherHost, guest: Guest) -> list[int]:
    return [port for port in PORTS if host.shell.reaches(guest.ip, port)]


def reaches_machine(host: OtherHost) -> bool:
    """Return whether a connection from here ends at the host's machine, which sees this host's address."""
    try:
        with socket.create_connection((host.guest, PORT), timeout=2) as connection:
            return connection.recv(64).decode() == OWN
    except OSError:
        return False


def routes() -> list[dict[str, object]]:
    shown = subprocess.run(["ip", "-j", "-N", "route", "show"], capture_output=True, text=True, check=True).stdout
    return [route for route in json.loads(shown) if str(route["dst"]).startswith("10.215.")]


def test_a_peer_reaches_listed_ports_only_and_a_stranger_none(
    network: Network, guest: Guest, hosts: Hosts, peer: OtherHost
) -> None:
    with answering(guest, *PORTS):
        apply_policy(network, guest)
        assert reached_from(peer, guest) == PORTS
        apply_policy(network, guest, ingress_ports=(8080,))
        assert reached_from(peer, guest) == [22, 8080, 10022]
        assert reached_from(hosts[1], guest) == []
        apply_policy(network, guest, allow_internet=False)
        assert reached_from(peer, guest) == PORTS


def test_a_host_that_is_no_peer_any_more_is_a_stranger(network: Network, guest: Guest, hosts: Hosts) -> None:
    apply_policy(network, guest)
    with answering(guest, *PORTS):
        network.apply_peers([host.peer for host in hosts])
        assert [reached_from(host, guest) for host in hosts] == [PORTS, PORTS]
        network.apply_peers([hosts[1].peer])
        assert [reached_from(host, guest) for host in hosts] == [[], PORTS]
        assert (reaches_machine(hosts[0]), reaches_machine(hosts[1])) == (False, True)


def test_this_host_reaches_the_machines_of_a_peer_from_its_address(network: Network, peer: OtherHost) -> None:
    assert reaches_machine(peer)


@pytest.mark.parametrize("private", [False, True], ids=["as it is", "with private networks allowed"])
def test_a_guest_opens_nothing_towards_a_peer_or_its_machines(
    network: Network, guest: Guest, peer: OtherHost, world: Outside, private: bool
) -> None:
    port = apply_policy(network, guest)
    if private:
        network._settings.allowed_private = ("10.0.0.0/8", str(HOSTS))  # type: ignore[misc]
        network.install([port])
    assert guest.reaches(world.address)
    assert not guest.reaches(peer.address)
    assert not guest.reaches(peer.guest)


def test_nobody_else_reaches_the_machines_of_a_peer_through_this_host(network: Network, hosts: Hosts) -> None:
    there, stranger = hosts
    way = ["ip", "route", "add", str(there.peer.subnet), "via"]
    subprocess.run(["nsenter", "-t", str(stranger.shell.pid), "-n", *way, OWN], check=True)
    subprocess.run([*way, there.address], check=True)
    assert stranger.shell.reaches(there.guest)
    network.apply_peers([there.peer])
    assert not stranger.shell.reaches(there.guest)


def test_a_packet_with_a_peers_address_gets_in_from_the_peer_only(
    network: Network, new_guest: Callable[[int], Guest], peer: OtherHost, world: Outside
) -> None:
    guest, hostile = new_guest(5), new_guest(6)
    apply_policy(network, guest)
    network.attach(NetworkPort("m6", hostile.ip, NetworkPolicy()))
    elsewhere = Guest(world.address, world.host, world.pid)
    for pretender in (hostile, elsewhere):
        into = ["nsenter", "-t", str(pretender.pid), "-n", "ip", "address"]
        subprocess.run([*into, "add", f"{peer.address}/32", "dev", "lo"], check=True)
    command = ["nsenter", "-t", str(guest.pid), "-n", sys.executable, "-c", LISTEN, "5000"]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "up\n"
            for pretender in (hostile, elsewhere):
                send_from(pretender, peer.address, guest.ip, 5000)
            peer.shell.run("import socket, sys\ns = socket.socket(type=socket.SOCK_DGRAM)\n"
                           "s.sendto(b'the peer', (sys.argv[1], 5000))\ns.sendto(b'end', (sys.argv[1], 5000))",
                           guest.ip)  # fmt: skip
            assert listener.stdout.read().splitlines() == ["the peer"]
    finally:
        into = ["nsenter", "-t", str(world.pid), "-n", "ip", "address"]
        subprocess.run([*into, "del", f"{peer.address}/32", "dev", "lo"], check=True)


def test_peers_outlive_the_process_and_the_tables(network: Network, guest: Guest, peer: OtherHost) -> None:
    policy = NetworkPolicy(ingress_ports=(8080,))
    port, folder = NetworkPort("m5", guest.ip, policy), network._settings.machines_dir
    MachineDir(folder, "m5").write_record(Record("m5", guest.ip, "sha256:x", 1, 128, 64, policy))
    with answering(guest, *PORTS):
        later = Network(network._settings)
        later.install([port])
        assert reached_from(peer, guest) == [22, 8080, 10022]
        later.apply_peers([peer.peer])
        subprocess.run(["nft", "delete", "table", "inet", network.table], check=True)
        subprocess.run(["ip", "route", "flush", "proto", "109"], check=True)
        assert routes() == []
        NetworkMaintainer(later, lambda: machine_dirs(folder), lambda: None).maintain_once(0)
        assert reached_from(peer, guest) == [22, 8080, 10022]
        assert reaches_machine(peer)


def test_only_own_routes_are_replaced_and_removed(network: Network, hosts: Hosts) -> None:
    first, second = (host.peer for host in hosts)
    others = [
        ["ip", "route", "add", str(first.subnet), "via", str(second.address), "proto", "static", "metric", "7"],
        ["ip", "route", "add", "10.215.77.0/24", "via", str(first.address), "proto", "109", "metric", "7"],
    ]
    for other in others:
        subprocess.run(other, check=True)
    before = routes()
    for _ in range(2):
        network.apply_peers([first, second])
        assert len(routes()) == len(before) + 2
    network.apply_peers([replace(first, address=second.address)])
    (own,) = [route for route in routes() if route not in before]
    assert (own["dst"], own["gateway"], own["prefsrc"]) == (str(first.subnet), str(second.address), OWN)
    network.uninstall()
    assert routes() == before


def test_a_peer_on_no_network_of_this_host_keeps_no_other_away(network: Network, hosts: Hosts) -> None:
    far = Peer(IPv4Address("198.18.7.7"), IPv4Network("10.215.1.0/24"))
    subprocess.run(["ip", "route", "add", "unreachable", "198.18.7.7"], check=True)
    try:
        network.apply_peers([far, hosts[0].peer])
    finally:
        subprocess.run(["ip", "route", "del", "unreachable", "198.18.7.7"], check=True)
    assert reaches_machine(hosts[0])


def test_a_peer_with_an_address_of_machines_is_refused_with_all_others(network: Network, hosts: Hosts) -> None:
    good, other, subnet = hosts[0].peer, hosts[1].peer, network._settings.subnet
    network.apply_peers([good])
    for bad in (
        replace(other, address=subnet[7]),
        replace(other, address=good.subnet[7]),
        replace(other, address=other.subnet[7]),
        replace(other, address=IPv4Address("127.0.0.1")),
        replace(other, subnet=subnet.supernet()),
        replace(other, subnet=good.subnet),
    ):
        with pytest.raises(BackendUnavailable):
            network.apply_peers([bad, good])
    assert (reaches_machine(hosts[0]), reaches_machine(hosts[1])) == (True, False)
