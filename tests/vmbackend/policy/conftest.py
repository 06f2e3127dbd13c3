"""Simulated guests behind the real bridge, firewall and resolvers, and a simulated internet."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.vm.outside import Outside, outside
from tests.vmbackend.policy.guests import INSTANCE, Guest, namespaces
from tests.vmbackend.policy.peer_hosts import OWN
from vmbackend.libvirt.firewall import mac_for
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.record import MachineDir
from vmbackend.uids import UidRange, default_first_uid


@pytest.fixture(scope="module")
def world() -> Iterator[Outside]:
    with outside(INSTANCE) as made:
        yield made


@pytest.fixture
def network(tmp_path: Path, world: Outside) -> Iterator[Network]:
    subnet = pytest.importorskip("tests.vmbackend.libvirt_factory").free_subnet()
    settings = SimpleNamespace(
        instance=INSTANCE,
        subnet=subnet,
        gateway=str(subnet.network_address + 1),
        address=OWN,
        dns=(world.address,),
        allowed_private=(),
        uids=UidRange(default_first_uid(subnet), subnet),
        machines_dir=tmp_path / "machines",
    )
    made = Network(settings)  # type: ignore[arg-type]
    try:
        made.install([])
        yield made
    finally:
        made.uninstall()


@pytest.fixture
def new_guest(network: Network) -> Iterator[Callable[[int], Guest]]:
    """A guest with the subnet's n-th address; its machine is called m<n>."""
    with namespaces() as enter:

        def make(number: int) -> Guest:
            settings = network._settings
            ip = str(settings.subnet.network_address + number)
            MachineDir(settings.machines_dir, f"m{number}").create()
            guest = Guest(ip, settings.gateway, enter())
            tap, inside = network.tap_for(ip), f"{INSTANCE}i{number}"
            into = ("nsenter", "-t", str(guest.pid), "-n", "ip")
            for command in (
                ("ip", "link", "add", tap, "type", "veth", "peer", "name", inside),
                ("ip", "link", "set", tap, "master", network.bridge, "up"),
                ("bridge", "link", "set", "dev", tap, "isolated", "on"),
                ("ip", "link", "set", inside, "netns", str(guest.pid)),
                (*into, "link", "set", inside, "address", mac_for(ip), "up"),
                (*into, "link", "set", "lo", "up"),
                (*into, "address", "add", f"{ip}/{settings.subnet.prefixlen}", "dev", inside),
                (*into, "route", "add", "default", "via", settings.gateway),
            ):
                subprocess.run(command, check=True)
            return guest

        yield make


@pytest.fixture
def guest(new_guest: Callable[[int], Guest]) -> Guest:
    return new_guest(5)
