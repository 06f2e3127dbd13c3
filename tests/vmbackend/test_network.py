"""Bridge and firewall on the real host: sets, idempotence, and forged frames of a hostile guest."""

from __future__ import annotations

import socket
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt import network as network_module
from vmbackend.libvirt.firewall import NetworkPort, mac_for
from vmbackend.libvirt.network import Network
from vmbackend.policy import NetworkPolicy
from vmbackend.uids import UidRange, default_first_uid

pytest.importorskip("libvirt")
from .libvirt_factory import free_subnet

pytestmark = pytest.mark.host
OPEN, CLOSED = NetworkPolicy(), NetworkPolicy(allow_internet=False)


def _tool(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _settings(instance, folder):
    subnet = free_subnet()
    return SimpleNamespace(
        instance=instance,
        subnet=subnet,
        gateway=str(subnet.network_address + 1),
        address="",
        dns=("192.0.2.53",),
        machines_dir=folder,
        allowed_private=(),
        uids=UidRange(default_first_uid(subnet), subnet),
    )


@pytest.fixture
def network(tmp_path):
    made = Network(_settings("fe0001", tmp_path / "one"))
    made.install([])
    yield made
    made.uninstall()


def _ip(network, number):
    return str(network._settings.subnet.network_address + number)


def _internet(network):
    return _tool("nft", "list", "set", "inet", network.table, "internet")


def test_attach_and_detach_are_idempotent(network):
    port = NetworkPort("m1", _ip(network, 5), OPEN)
    for _ in range(2):
        network.attach(port)
        assert network.attached_addresses() == {"m1": port.ip}
        assert port.ip in _internet(network)
    for _ in range(2):
        network.detach(port.ip, port.machine_id)
        assert network.attached_addresses() == {}
        assert port.ip not in _internet(network)


def test_internet_access_is_revoked(network):
    network.attach(NetworkPort("m1", _ip(network, 5), OPEN))
    network.attach(NetworkPort("m1", _ip(network, 5), CLOSED))
    assert network.attached_addresses() == {"m1": _ip(network, 5)}
    assert _ip(network, 5) not in _internet(network)


def test_an_address_moves_to_another_machine(network):
    former = NetworkPort("m1", _ip(network, 5), OPEN)
    network.attach(former)
    network.attach(NetworkPort("m1", _ip(network, 6), OPEN), former)
    network.attach(NetworkPort("m2", _ip(network, 5), CLOSED))
    assert network.attached_addresses() == {"m1": _ip(network, 6), "m2": _ip(network, 5)}


def test_reinstalling_attaches_exactly_the_given_ports(network):
    network.attach(NetworkPort("gone", _ip(network, 9), OPEN))
    network.install([NetworkPort("m1", _ip(network, 5), CLOSED)])
    assert network.attached_addresses() == {"m1": _ip(network, 5)}
    assert _ip(network, 9) not in _internet(network)


def test_foreign_and_own_addresses_are_refused(network):
    for ip in ("192.0.2.7", _ip(network, 0), _ip(network, 1), _ip(network, 255)):
        with pytest.raises(BackendUnavailable):
            network.attach(NetworkPort("m1", ip, OPEN))


def test_one_instance_does_not_affect_another(network, tmp_path):
    other = Network(_settings("fe0002", tmp_path / "two"))
    try:
        other.install([])
        network.attach(NetworkPort("m1", _ip(network, 5), OPEN))
        assert other.attached_addresses() == {}
    finally:
        other.uninstall()
        other.uninstall()
    assert network.attached_addresses() == {"m1": _ip(network, 5)}
    assert Path(f"/sys/class/net/{network.bridge}").exists()
    assert not Path(f"/sys/class/net/{other.bridge}").exists()


def _frame(network, *, source_mac, source_ip):
    """An ICMP echo request to the host."""
    payload = b"\x08\x00" + b"\x00\x00" + b"\x00\x01\x00\x01"
    total = sum(struct.unpack("!4H", payload))
    payload = payload[:2] + struct.pack("!H", ~total & 0xFFFF) + payload[4:]
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 28, 1, 0, 64, 1, 0, socket.inet_aton(source_ip), socket.inet_aton(_ip(network, 1))
    )
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + header[12:]
    ethernet = bytes.fromhex(mac_for(_ip(network, 1)).replace(":", ""))
    return ethernet + bytes.fromhex(source_mac.replace(":", "")) + b"\x08\x00" + header + payload


@pytest.fixture
def guest(network):
    """A veth pair that simulates a guest: what is sent on one end comes out of its tap."""
    tap, inside = network.tap_for(_ip(network, 5)), "fe0001in"
    _tool("ip", "link", "add", tap, "type", "veth", "peer", "name", inside)
    _tool("ip", "link", "set", tap, "master", network.bridge, "up")
    _tool("ip", "link", "set", inside, "up")
    _tool("nft", "add", "chain", "inet", network.table, "seen", "{ type filter hook prerouting priority -150; }")
    _tool("nft", "add", "rule", "inet", network.table, "seen", "iifname", network.bridge, "icmp", "type",
          "echo-request", "counter")  # fmt: skip
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind((inside, 0))
    yield raw
    raw.close()
    network.remove_tap(tap)


def _first_frame(receiver):
    """The first frame that the host sent through a tap; None: none within the time."""
    receiver.settimeout(2)
    try:
        while True:
            frame, address = receiver.recvfrom(2048)
            if frame[12:14] in (b"\x08\x00", b"\x08\x06") and address[2] != socket.PACKET_OUTGOING:
                return frame
    except TimeoutError:
        return None


def _receiver(interface):
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    made.bind((interface, 0))
    return made


def _passed(network, guest, **frame):
    guest.send(_frame(network, **frame))
    return "packets 1 " in _tool("nft", "list", "chain", "inet", network.table, "seen")


def test_a_frame_of_an_attached_machine_passes(network, guest):
    network.attach(NetworkPort("m1", _ip(network, 5), OPEN))
    assert _passed(network, guest, source_mac=mac_for(_ip(network, 5)), source_ip=_ip(network, 5))


@pytest.mark.parametrize(("mac_of", "number"), [(5, 6), (6, 5), (6, 6)])
def test_a_frame_with_a_forged_source_is_dropped(network, guest, mac_of, number):
    network.attach(NetworkPort("m1", _ip(network, 5), OPEN))
    network.attach(NetworkPort("m2", _ip(network, 6), OPEN))
    assert not _passed(network, guest, source_mac=mac_for(_ip(network, mac_of)), source_ip=_ip(network, number))


def test_a_frame_of_a_detached_machine_is_dropped(network, guest):
    assert not _passed(network, guest, source_mac=mac_for(_ip(network, 5)), source_ip=_ip(network, 5))


def test_a_connection_reaches_a_machine_that_never_said_where_it_is(network, guest):
    """As after a wake on a busy host: the guest answers no ARP question in time, which is EHOSTUNREACH."""
    port = NetworkPort("m1", _ip(network, 5), OPEN)
    network.attach(port)
    network.connect(port.ip)
    with _receiver("fe0001in") as receiver, socket.socket() as client:
        client.setblocking(False)
        client.connect_ex((port.ip, 22))
        frame = _first_frame(receiver)
    assert frame is not None
    assert (frame[:6].hex(":"), frame[12:14]) == (mac_for(port.ip), b"\x08\x00")


def test_frames_for_a_machine_reach_no_other(network, guest):
    port = NetworkPort("m1", _ip(network, 5), OPEN)
    network.attach(port)
    network.attach(NetworkPort("m2", _ip(network, 6), OPEN))
    network.connect(port.ip)
    with _receiver("fe0001in") as receiver, socket.socket() as other, socket.socket() as own:
        for client, number in ((other, 6), (own, 5)):
            client.setblocking(False)
            client.connect_ex((_ip(network, number), 22))
        frame = _first_frame(receiver)
    assert frame is not None
    assert socket.inet_ntoa(frame[30:34]) == port.ip


def _neighbours(network):
    listed = _tool("ip", "neigh", "show", "dev", network.bridge, "nud", "permanent")
    return {line.split()[0] for line in listed.splitlines()}


def test_a_machine_is_a_neighbour_from_its_start_to_its_end(network, guest):
    port = NetworkPort("m1", _ip(network, 5), OPEN)
    network.attach(port)
    assert _neighbours(network) == set()
    for _ in range(2):
        network.connect(port.ip)
        assert _neighbours(network) == {port.ip}
    network.remove_neighbour(port.ip)
    assert _neighbours(network) == set()
    network.add_neighbour(port.ip)
    network.install([port, NetworkPort("m2", _ip(network, 6), OPEN)])  # the other has no process
    assert _neighbours(network) == {port.ip}
    for _ in range(2):
        network.detach(port.ip, "m1")
        assert _neighbours(network) == set()


def test_neighbours_that_the_kernel_removed_are_restored(network, guest):
    port = NetworkPort("m1", _ip(network, 5), OPEN)
    network.attach(port)
    network.connect(port.ip)
    _tool("ip", "link", "set", network.bridge, "down")
    _tool("ip", "link", "set", network.bridge, "up")
    assert _neighbours(network) == set()
    network.restore_neighbours([port])
    assert _neighbours(network) == {port.ip}


def test_an_orphaned_tap_is_removed_and_a_foreign_interface_is_not(network, guest):
    (tap,) = network.taps()
    network.remove_tap("lo")
    network.remove_tap(tap)
    assert network.taps() == []
    assert Path("/sys/class/net/lo").exists()


def test_interface_names_fit_the_kernels_limit(network):
    assert len(network.tap_for(_ip(network, 254))) <= 15
    assert len(network.bridge) <= 15


def test_a_tap_that_disappears_while_it_is_removed_is_no_error(tmp_path, monkeypatch):
    """It goes with its process, between the check and the removal."""
    made = Network(_settings("fe0077", tmp_path))
    name = f"{made._tap_prefix}1"
    devices = tmp_path / "net"
    (devices / name).mkdir(parents=True)
    monkeypatch.setattr(network_module, "_NET", devices)

    def gone(*command, **options):
        (devices / name).rmdir()
        raise BackendUnavailable("The host's program ip failed.")

    monkeypatch.setattr(network_module, "run_tool", gone)
    made.remove_tap(name)


def test_a_tap_that_cannot_be_removed_is_an_error(tmp_path, monkeypatch):
    made = Network(_settings("fe0078", tmp_path))
    name = f"{made._tap_prefix}1"
    (tmp_path / "net" / name).mkdir(parents=True)
    monkeypatch.setattr(network_module, "_NET", tmp_path / "net")

    def fails(*command, **options):
        raise BackendUnavailable("The host's program ip failed.")

    monkeypatch.setattr(network_module, "run_tool", fails)
    with pytest.raises(BackendUnavailable):
        made.remove_tap(name)
