"""What machines reach and what they do not. Nothing leaves this host: a namespace stands for the internet."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address
from typing import Any

import pytest

from tests.vm.client import Api, until
from tests.vm.conftest import Witness
from tests.vm.instances import TestInstance
from tests.vm.onhost import resolvers
from tests.vm.outside import OTHER_PORT, PORT, Outside, outside
from tests.vm.probes import CONTROL_PORT, reached

pytestmark = [pytest.mark.vm, pytest.mark.host]
ETH_P_ALL = 0x0003


@pytest.fixture(scope="module")
def internet(instance: TestInstance) -> Iterator[Outside]:
    with outside(instance.id) as made:
        yield made


@pytest.fixture(scope="module")
def closed(api: Api, witness: Witness) -> Iterator[dict[str, str]]:
    """A second machine, without internet."""
    made = api.create(network_config={"allow_internet": False})
    yield {"id": made["id"], "ip": made["ip"]}
    api.delete(made["id"])


@pytest.fixture(scope="module")
def gateway(instance: TestInstance) -> str:
    return str(instance.settings.subnet.network_address + 1)


@pytest.fixture
def service() -> Iterator[int]:
    """The port of a service of the host that listens on every address."""
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


def test_a_machine_with_internet_reaches_it_behind_the_hosts_address(
    api: Api, witness: Witness, internet: Outside
) -> None:
    assert api.output(witness.id, f"nc -w 5 {internet.address} {PORT} </dev/null") == internet.host


def test_a_machine_without_internet_reaches_nothing_outside(
    api: Api, witness: Witness, closed: dict[str, str], internet: Outside
) -> None:
    assert reached(api, closed["id"], internet.address, PORT) == set()
    assert reached(api, witness.id, internet.address, PORT) == {"tcp", "ping"}


def test_machines_do_not_see_each_other(api: Api, witness: Witness, closed: dict[str, str], gateway: str) -> None:
    assert reached(api, witness.id, closed["ip"]) == set()
    assert reached(api, closed["id"], witness.ip) == set()
    # The same probes do reach what may be reached.
    assert reached(api, closed["id"], gateway) == {"ping", "arp"}


def test_machines_do_not_see_each_other_through_the_gateway(
    api: Api, witness: Witness, closed: dict[str, str], gateway: str
) -> None:
    route = f"ip route add {closed['ip']}/32 via {gateway} dev eth0"
    api.output(witness.id, route)
    try:
        assert reached(api, witness.id, closed["ip"]) == set()
    finally:
        api.output(witness.id, route.replace("add", "del"))


def test_the_host_reaches_the_control_port(witness: Witness) -> None:
    with socket.create_connection((witness.ip, CONTROL_PORT), timeout=10) as connection:
        assert connection.recv(4) == b"SSH-"


def test_services_of_the_host_are_out_of_reach(
    instance: TestInstance, api: Api, witness: Witness, gateway: str, internet: Outside, service: int
) -> None:
    # The service exists, and the host's own firewall allows others.
    socket.create_connection((gateway, service), timeout=2).close()
    for address, port in ((gateway, service), (internet.host, service), (gateway, instance.instance.port)):
        assert "tcp" not in reached(api, witness.id, address, port), (address, port)


def test_a_machine_speaks_with_its_own_addresses_only(
    instance: TestInstance, api: Api, witness: Witness, closed: dict[str, str], gateway: str
) -> None:
    foreign, mac = _unused(instance, witness.ip, closed["ip"]), "02:00:5e:00:53:01"
    with _frames(f"mvb{instance.id}") as seen:
        # Its own addresses pass, so below it is the firewall that drops.
        assert api.execute(closed["id"], f"ping -c 1 -W 2 {gateway}; arping -c 1 -w 2 -I eth0 {gateway}")
        api.execute(closed["id"], f"ip address add {foreign}/32 dev eth0; ping -c 2 -W 1 -I {foreign} {gateway}")
        api.execute(closed["id"], f"arping -U -c 2 -w 2 -I eth0 -s {foreign} {foreign}")
        api.execute(closed["id"], f"ip address del {foreign}/32 dev eth0")
        api.execute(closed["id"], f"arping -U -c 2 -w 2 -I eth0 -s {gateway} {gateway}")
        own = api.output(closed["id"], ["cat", "/sys/class/net/eth0/address"])
        change = "ip link set eth0 address"
        api.execute(closed["id"], f"{change} {mac}; ping -c 2 -W 1 {gateway}; {change} {own}")
    assert ("ip", own, closed["ip"]) in seen
    assert ("arp", own, closed["ip"]) in seen
    assert not [frame for frame in seen if frame[2] == foreign]
    assert not [frame for frame in seen if frame[1] == mac]
    assert not [frame for frame in seen if frame[1] == own and frame[2] == gateway]


def _unused(instance: TestInstance, *used: str) -> str:
    hosts = instance.settings.subnet
    return next(str(hosts[n]) for n in range(2, 10) if str(hosts[n]) not in used)


@contextmanager
def _frames(device: str) -> Iterator[set[tuple[str, str, str]]]:
    """(protocol, source MAC, source address) of every frame that the host takes from a device inside the block."""
    seen: set[tuple[str, str, str]] = set()
    over = threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(ETH_P_ALL)) as tap:
        tap.bind((device, 0))
        tap.settimeout(0.2)
        reader = threading.Thread(target=_read_frames, args=(tap, seen, over))
        reader.start()
        try:
            yield seen
        finally:
            over.set()
            reader.join()


def _read_frames(tap: socket.socket, seen: set[tuple[str, str, str]], over: threading.Event) -> None:
    while True:
        try:
            frame = tap.recv(2048)
        except TimeoutError:
            if over.is_set():
                return
            continue
        name, at = {b"\x08\x00": ("ip", 26), b"\x08\x06": ("arp", 28)}.get(frame[12:14], ("other", 0))
        if at:
            seen.add((name, frame[6:12].hex(":"), str(IPv4Address(frame[at : at + 4]))))


@pytest.fixture
def narrow(api: Api, closed: dict[str, str]) -> Iterator[Callable[..., None]]:
    """Changes the network of the machine without internet; it is closed again at the end."""
    path = f"/workspace/{closed['id']}/network"

    def change(**fields: Any) -> None:
        assert api.call("PATCH", path, json=fields)["applied"] is True

    yield change
    change(allow_internet=False, egress=[], egress_ports=[], ingress_ports=[])


def test_the_internet_is_switched_while_a_machine_runs(
    api: Api, closed: dict[str, str], internet: Outside, narrow: Callable[..., None]
) -> None:
    narrow(allow_internet=True)
    assert "tcp" in reached(api, closed["id"], internet.address, PORT)
    assert "tcp" in reached(api, closed["id"], "www.example.com", PORT)
    narrow(allow_internet=False)
    assert reached(api, closed["id"], internet.address, PORT) == set()
    assert reached(api, closed["id"], "www.example.com", PORT) == set()


def test_listed_networks_are_the_only_ones(
    api: Api, closed: dict[str, str], internet: Outside, narrow: Callable[..., None]
) -> None:
    narrow(egress=[f"{internet.second}/32"])
    assert "tcp" in reached(api, closed["id"], internet.second, PORT)
    assert reached(api, closed["id"], internet.address, PORT) == set()


def test_listed_names_are_the_only_ones_and_outlive_vmhost(
    instance: TestInstance, api: Api, closed: dict[str, str], internet: Outside, narrow: Callable[..., None]
) -> None:
    narrow(egress=["api.example.com", "*.example.org"])
    assert reached(api, closed["id"], internet.address, PORT) == set()
    for name in ("api.example.com", "a.b.example.org"):
        assert "tcp" in reached(api, closed["id"], name, PORT)
    for name in ("www.example.com", "example.org", "example.net"):
        assert reached(api, closed["id"], name, PORT) == set()
    assert resolvers(instance) == {closed["id"]}
    instance.kill("vmhost")
    assert "tcp" in reached(api, closed["id"], "api.example.com", PORT)
    instance.wait_until_serving()
    assert "tcp" in reached(api, closed["id"], "api.example.com", PORT)
    assert reached(api, closed["id"], "www.example.com", PORT) == set()
    narrow(egress=[])
    assert resolvers(instance) == frozenset()


def test_names_outlive_a_restart_of_the_machine(
    api: Api, closed: dict[str, str], internet: Outside, narrow: Callable[..., None]
) -> None:
    narrow(egress=["api.example.com"])
    api.power(closed["id"], "restart")
    assert "tcp" in reached(api, closed["id"], "api.example.com", PORT)
    assert reached(api, closed["id"], "www.example.com", PORT) == set()


def test_a_name_that_points_inside_opens_nothing(
    instance: TestInstance, api: Api, witness: Witness, closed: dict[str, str], gateway: str, internet: Outside,
    service: int, narrow: Callable[..., None],
) -> None:  # fmt: skip
    narrow(egress=["*.rebind.test"])
    for address, port in ((gateway, service), (internet.host, service), (witness.ip, CONTROL_PORT)):
        name = f"ip-{address.replace('.', '-')}.rebind.test"
        shown = api.execute(closed["id"], ["nslookup", name])["stdout"]
        assert address in shown, shown
        assert "tcp" not in reached(api, closed["id"], name, port), name


def test_listed_ports_outside_are_the_only_ones(
    api: Api, closed: dict[str, str], internet: Outside, narrow: Callable[..., None]
) -> None:
    for fields in ({"allow_internet": True}, {"allow_internet": False, "egress": [internet.address]}):
        narrow(**fields, egress_ports=[OTHER_PORT])
        assert reached(api, closed["id"], internet.address, OTHER_PORT) == {"tcp"}
        assert reached(api, closed["id"], internet.address, PORT) == set()


def test_listed_ports_of_a_machine_are_the_only_ones(
    api: Api, closed: dict[str, str], narrow: Callable[..., None]
) -> None:
    api.output(closed["id"], "httpd -p 8080; httpd -p 9090")  # it goes into the background by itself
    until(lambda: _ports(closed["ip"]) == {8080, 9090}, 10, "both ports answer")
    narrow(ingress_ports=[8080])
    assert _ports(closed["ip"]) == {8080}
    assert api.output(closed["id"], "echo in") == "in"


def _ports(ip: str) -> set[int]:
    found = set()
    for port in (8080, 9090):
        with suppress(OSError), socket.create_connection((ip, port), timeout=2):
            found.add(port)
    return found
