"""What guests share on their host: one that takes all it can get leaves enough to others and sees nothing of them."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.vm.client import until
from tests.vm.outside import Outside
from tests.vmbackend.policy.guests import Guest, apply_policy
from vmbackend.libvirt import firewall
from vmbackend.libvirt.firewall import NetworkPort, mac_for
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.resolver import _running
from vmbackend.policy import NetworkPolicy

pytestmark = pytest.mark.host

HOLD_CONNECTIONS = """
import socket, sys
held = []
for _ in range(30):
    c = socket.socket()
    c.settimeout(0.3)
    try:
        c.connect((sys.argv[1], 53))
        held.append(c)
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.read()
"""
ASK_BY_TCP = """
import socket, sys
asked = b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3www\\7example\\3com\\0\\0\\1\\0\\1"
try:
    with socket.create_connection((sys.argv[1], 53), timeout=5) as c:
        c.sendall(len(asked).to_bytes(2, "big") + asked)
        print(socket.inet_ntoa(c.recv(512)[-4:]))
except OSError as error:
    print(error)
"""
# More than the resolver keeps waiting by default.
ASK_WITHOUT_ANSWER = """
import socket, sys, time
with socket.socket(type=socket.SOCK_DGRAM) as s:
    s.connect((sys.argv[1], 53))
    for number in range(1000):
        name = b"n%04d" % number
        question = bytes([len(name)]) + name + b"\\6silent\\4test\\0\\0\\1\\0\\1"
        s.send(b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0" + question)
        time.sleep(0.0005)
"""
# Each has a port of its own: one that is used twice is the same flow.
SEND_FROM_MANY_PORTS = """
import socket, sys
for number in range(int(sys.argv[2])):
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.bind(("", 20000 + number))
        s.sendto(b"x", (sys.argv[1], 7999))
"""
# Prints the kind of each frame, and the address that an ARP question asks for.
LISTEN = """
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("up", flush=True)
while True:
    frame, place = s.recvfrom(2048)
    if place[2] != socket.PACKET_OUTGOING:
        if frame[12:14] == b"\\x86\\xdd":
            print("ipv6", "from", frame[6:12].hex(":"), flush=True)
            continue
        of = frame[38:42] if frame[12:14] == b"\\x08\\x06" else frame[30:34]
        print(frame[12:14].hex(), socket.inet_ntoa(of), flush=True)
"""


@contextmanager
def running(guest: Guest, code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A program in a guest that ends with the block."""
    command = ["nsenter", "-t", str(guest.pid), "-n", sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def two(network: Network, new_guest: Callable[[int], Guest]) -> tuple[Guest, Guest]:
    """A guest that takes all it can get, and another one."""
    loud, other = new_guest(5), new_guest(6)
    apply_policy(network, loud)
    network.attach(NetworkPort("m6", other.ip, NetworkPolicy()))
    return loud, other


def test_connections_to_the_resolver_are_limited_for_each_guest(two: tuple[Guest, Guest], world: Outside) -> None:
    loud, other = two
    assert other.resolve("www.example.com") == world.address  # into the cache: outside answers by UDP only
    with running(loud, HOLD_CONNECTIONS, loud.gateway) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == firewall.DNS_CONNECTIONS
        assert other.run(ASK_BY_TCP, other.gateway) == world.address


def test_queries_without_an_answer_leave_the_resolver_to_others(two: tuple[Guest, Guest], world: Outside) -> None:
    loud, other = two
    loud.run(ASK_WITHOUT_ANSWER, loud.gateway)
    assert other.resolve("www.example.com") == world.address


def test_tracked_flows_are_limited_for_each_guest(
    network: Network, two: tuple[Guest, Guest], world: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    loud, other = two
    monkeypatch.setattr(firewall, "FLOWS", 50)
    ports = [NetworkPort("m5", loud.ip, NetworkPolicy()), NetworkPort("m6", other.ip, NetworkPolicy())]
    network.install(ports)
    chain = ("inet", network.table, "sent")
    hook = "{ type filter hook postrouting priority 0; policy accept; }"
    subprocess.run(["nft", "add", "chain", *chain, hook], check=True)
    rule = ["ip", "saddr", loud.ip, "udp", "dport", "7999", "ct", "state", "new", "counter"]
    subprocess.run(["nft", "add", "rule", *chain, *rule], check=True)
    loud.run(SEND_FROM_MANY_PORTS, world.address, 200)
    shown = subprocess.run(["nft", "list", "chain", *chain], capture_output=True, text=True, check=True).stdout
    assert "packets 50 " in shown
    assert not loud.reaches(world.address)
    assert other.reaches(world.address)


def run(*command: str) -> None:
    subprocess.run(command, check=False, capture_output=True)


def send_to(address: str) -> None:
    """From the host; the frame is on its way when this returns, unless its ARP question waits for an answer."""
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", (address, 7999))
    until(lambda: address in resolved(), 5, "the address is resolved")


def resolved() -> str:
    return subprocess.run(
        ["ip", "neigh", "show", "nud", "reachable", "nud", "stale", "nud", "delay", "nud", "probe", "nud", "permanent"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_guest_sees_no_frame_for_another(network: Network, two: tuple[Guest, Guest]) -> None:
    """Neither the questions for its address nor, while the bridge does not know its port, what is sent to it."""
    loud, other = two
    with running(loud, LISTEN) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        for address in (other.ip, loud.ip):
            # An ARP question, then a frame to a port that the bridge does not know, which it sends to all.
            run("ip", "neigh", "del", address, "dev", network.bridge)
            send_to(address)
            run(
                "ip", "neigh", "replace", address, "lladdr", mac_for(address), "dev", network.bridge, "nud", "permanent"
            )
            run("bridge", "fdb", "del", mac_for(address), "dev", network.tap_for(address), "master")
            send_to(address)
        seen: set[tuple[str, ...]] = set()
        while ("0800", loud.ip) not in seen:
            seen.add(tuple(process.stdout.readline().split()))
    # The host's own search for neighbours, at any time after these links were made.
    links = (network.bridge, *(network.tap_for(guest.ip) for guest in two))
    of_host = {("ipv6", "from", Path(f"/sys/class/net/{link}/address").read_text().strip()) for link in links}
    assert seen - of_host == {("0806", loud.ip), ("0800", loud.ip)}


@pytest.mark.parametrize("names", [(), ("api.example.com",)])
def test_a_resolver_is_a_user_of_its_own_that_sees_its_own_folder(
    network: Network, guest: Guest, names: tuple[str, ...], world: Outside
) -> None:
    apply_policy(network, guest, allow_internet=not names, egress=names)
    assert guest.resolve("api.example.com") == world.address
    shared = network._settings.machines_dir / ".network" / "resolver.conf"
    (pid,) = [pid for pid, conf in _running(network._settings.machines_dir) if (conf == shared) == (not names)]
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert "0" not in status["Uid"].split()
    # CAP_NET_ADMIN, for the firewall's sets of learned addresses.
    assert int(status["CapPrm"], 16) == (1 << 12 if names else 0)
    assert int(status["CapBnd"], 16) & ~(1 << 6 | 1 << 7 | 1 << 10 | 1 << 12) == 0
    assert status["NoNewPrivs"] == "1"
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert "Max data size             134217728" in limits
    root = Path(f"/proc/{pid}/root")
    assert sorted(path.name for path in (root / "etc").iterdir()) == ["group", "passwd"]
    assert [path.name for path in (root / str(network._settings.machines_dir)[1:]).rglob("*.conf")] == ["resolver.conf"]
    assert not (root / "proc" / "1").exists()
