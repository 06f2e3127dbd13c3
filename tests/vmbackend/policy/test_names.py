"""Names that a guest may resolve and reach, tested by traffic."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.vm.outside import Outside
from tests.vmbackend.policy.guests import NOTHING, NXDOMAIN, RESOLVE, Guest, apply_policy
from vmbackend.libvirt.firewall import NetworkPort
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.network_maintainer import NetworkMaintainer
from vmbackend.libvirt.record import MachineDir, Record, machine_dirs
from vmbackend.libvirt.resolver import Resolver, _running
from vmbackend.policy import NetworkPolicy

pytestmark = pytest.mark.host


def test_a_listed_name_is_reached_after_it_was_asked_for(network: Network, guest: Guest, world: Outside) -> None:
    apply_policy(network, guest, allow_internet=False, egress=("api.example.com",))
    assert not guest.reaches(world.address)
    assert guest.resolve("api.example.com") == world.address
    assert guest.reaches(world.address)
    assert not guest.reaches(world.second)


@pytest.mark.parametrize(
    ("egress", "resolved", "refused"),
    [
        (("example.com",), ["example.com"], ["www.example.com", "example.org", "example.com.evil.test"]),
        (("*.example.com",), ["www.example.com", "a.b.example.com"], ["example.com", "notexample.com"]),
        (("example.com", "*.example.com"), ["example.com", "www.example.com"], ["com"]),
        (("example.com", "a.example.com"), ["example.com", "a.example.com"], ["b.example.com", "x.a.example.com"]),
        (("example.com", "*.a.example.com"), ["example.com", "x.a.example.com"], ["b.example.com", "a.example.com"]),
        (("*.example.com", "a.example.com"), ["b.example.com", "a.example.com", "x.a.example.com"], ["example.com"]),
    ],
)
def test_egress_names_and_wildcards(
    network: Network, guest: Guest, world: Outside, egress: tuple[str, ...], resolved: list[str], refused: list[str]
) -> None:
    apply_policy(network, guest, allow_internet=False, egress=egress)
    assert {name: guest.resolve(name) for name in resolved} == dict.fromkeys(resolved, world.address)
    assert {name: guest.resolve(name) for name in refused} == dict.fromkeys(refused, NXDOMAIN)


def test_allowed_names_of_one_machine_do_not_apply_to_another(
    network: Network, new_guest: Callable[[int], Guest], world: Outside
) -> None:
    one, two = new_guest(5), new_guest(6)
    apply_policy(network, one, allow_internet=False, egress=("one.test",))
    network.attach(NetworkPort("m6", two.ip, NetworkPolicy(allow_internet=False, egress=("two.test",))))
    assert one.resolve("one.test") == two.resolve("two.test") == world.address
    assert one.resolve("two.test") == two.resolve("one.test") == NXDOMAIN
    network.expire_learned_addresses(two.ip, 0)
    network.expire_learned_addresses(two.ip, 1)
    assert one.reaches(world.address)
    assert not two.reaches(world.address)


@pytest.mark.parametrize("of", ["host", "gateway", "other"])
def test_a_name_that_resolves_to_an_internal_address_allows_nothing(
    network: Network, new_guest: Callable[[int], Guest], of: str
) -> None:
    guest, other = new_guest(5), new_guest(6)
    network.attach(NetworkPort("m6", other.ip, NetworkPolicy()))
    apply_policy(network, guest, allow_internet=False, egress=("*.rebind.test",))
    host = next(iter(addresses_of_host()))
    address = {"host": host, "gateway": guest.gateway, "other": other.ip}[of]
    with listening() as port:
        socket.create_connection((guest.gateway, port), timeout=2).close()
        answer = guest.resolve(f"ip-{address.replace('.', '-')}.rebind.test")
        assert answer == address
        assert not guest.reaches(address, port)


def addresses_of_host() -> list[str]:
    shown = subprocess.run(["ip", "-j", "-4", "address"], capture_output=True, text=True, check=True).stdout
    return [a["local"] for link in json.loads(shown) if link["ifname"] != "lo" for a in link["addr_info"]]


@contextmanager
def listening() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


def test_a_learned_address_is_reachable_for_the_lifetime_of_its_dns_answer(
    network: Network, guest: Guest, world: Outside
) -> None:
    """An address learned in one expiry round is still valid in the next and expires in the one after."""
    apply_policy(network, guest, allow_internet=False, egress=("api.example.com",))
    seconds = int(guest.run(RESOLVE, "api.example.com", guest.gateway).split()[1])
    assert 0 < seconds <= 60
    network.expire_learned_addresses(guest.ip, 0)
    assert guest.resolve("api.example.com") == world.address
    network.expire_learned_addresses(guest.ip, 1)
    assert guest.reaches(world.address)
    network.expire_learned_addresses(guest.ip, 2)
    assert not guest.reaches(world.address)


def test_learned_addresses_survive_a_restart_of_the_driver(network: Network, guest: Guest, world: Outside) -> None:
    port = apply_policy(network, guest, allow_internet=False, egress=("api.example.com",))
    guest.resolve("api.example.com")
    before = dict(_running(network._settings.machines_dir))
    network.install([port])
    assert guest.reaches(world.address)
    assert dict(_running(network._settings.machines_dir)) == before


def test_a_change_of_names_takes_effect_on_the_resolver(network: Network, guest: Guest, world: Outside) -> None:
    apply_policy(network, guest, allow_internet=False, egress=("one.test",))
    assert guest.resolve("one.test") == world.address
    apply_policy(network, guest, generation=2, before=1, allow_internet=False, egress=("two.test",))
    assert guest.resolve("one.test") == NXDOMAIN
    assert guest.resolve("two.test") == world.address
    apply_policy(network, guest, generation=3, before=2, allow_internet=False)
    assert guest.resolve("two.test") == "refused"
    assert not guest.reaches(world.address)
    assert len(list(_running(network._settings.machines_dir))) == 1


FLOOD = """
import socket, sys
asked = b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3www\\7example\\3com\\0\\0\\1\\0\\1"
with socket.socket(type=socket.SOCK_DGRAM) as s:
    s.settimeout(1)
    s.connect((sys.argv[1], 53))
    got = 0
    for _ in range(5000):
        s.send(asked)
    try:
        while s.recv(512):
            got += 1
    except TimeoutError:
        print(got)
"""


def test_a_guest_that_floods_the_resolver_does_not_block_others(
    network: Network, new_guest: Callable[[int], Guest], world: Outside
) -> None:
    loud, other = new_guest(5), new_guest(6)
    apply_policy(network, loud)
    network.attach(NetworkPort("m6", other.ip, NetworkPolicy()))
    assert 0 < int(loud.run(FLOOD, loud.gateway)) < 2500
    assert other.resolve("www.example.com") == world.address


def test_a_dead_resolver_is_restarted_and_orphaned_resolvers_are_stopped(
    network: Network, guest: Guest, world: Outside
) -> None:
    folder = network._settings.machines_dir
    policy = NetworkPolicy(allow_internet=False, egress=("api.example.com",))
    record = Record("m5", guest.ip, "sha256:x", 1, 128, 64, policy)
    MachineDir(folder, "m5").write_record(record)
    network.attach(NetworkPort("m5", guest.ip, policy))
    orphan = MachineDir(folder, "gone")
    orphan.create()
    Resolver(orphan.resolver).start_for_names(guest.gateway, ["x.test"], ["inet#none#none"], 60)
    Resolver(MachineDir(folder, "m5").resolver).stop()
    Resolver(folder / ".network").stop()
    assert guest.resolve("api.example.com") in ("refused", NOTHING)
    NetworkMaintainer(network, lambda: machine_dirs(folder), lambda: None).maintain_once(0)
    assert guest.resolve("api.example.com") == world.address
    assert guest.reaches(world.address)
    running = {conf for _, conf in _running(folder)}
    assert running == {folder / ".network" / "resolver.conf", MachineDir(folder, "m5").resolver / "resolver.conf"}


def test_policies_of_several_guests_change_concurrently(network: Network, new_guest: Callable[[int], Guest]) -> None:
    guests = {number: new_guest(number) for number in (5, 6, 7)}

    def change(number: int) -> None:
        for turn in range(4):
            names = (f"n{number}-{turn}.test",)
            network.attach(NetworkPort(f"m{number}", guests[number].ip, NetworkPolicy(False, names), turn))

    threads = [threading.Thread(target=change, args=(number,)) for number in guests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, guest in guests.items():
        assert guest.resolve(f"n{number}-3.test") not in (NXDOMAIN, NOTHING, "refused")
        assert guest.resolve(f"n{number}-2.test") == NXDOMAIN
