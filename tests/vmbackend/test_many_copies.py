"""Many starts of one boot template, and many forks of one guest: nothing that tells machines apart is the same twice.

STARTS and FORKS in the environment say how many.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cache import DEBIAN_KIT_DIR, KIT_DIR, use_kit_dir
from tests.run_extent import number_of
from vmbackend.guest.kit import build_kit
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import templates
from vmbackend.libvirt.store import FOLDER
from vmbackend.power import StartedFrom

from .conftest import Harness
from .snapshot_scenes import load_fork, run

pytestmark = [pytest.mark.vm, pytest.mark.campaign, pytest.mark.timeout(7200)]
STARTS, FORKS = number_of("STARTS", 4, 200), number_of("FORKS", 4, 50)
# So many run at once, whatever memory the host has.
AT_ONCE = 5
# Debian's kernel shows the UUID of the firmware, the own one does not.
KERNELS = {"own kernel": (KIT_DIR, STARTS, FORKS), "Debian's kernel": (DEBIAN_KIT_DIR, 3, 3)}
# The machine id is made by the first one who looks, as images do that have none. A client's hello begins with eleven
# bytes that say what it is, and then has its random number.
WHO = """
[ -s /etc/machine-id ] || tr -d - < /proc/sys/kernel/random/uuid > /etc/machine-id
until ip -6 -o address show eth0 | grep -q fe80; do sleep 0.1; done
echo boot $(cat /proc/sys/kernel/random/boot_id)
echo generation $(cat /run/kit/generation)
echo machine $(cat /etc/machine-id)
echo mac $(cat /sys/class/net/eth0/address)
echo ipv4 $(ip -4 -o address show eth0 | awk '{print $4}')
echo ipv6 $(ip -6 -o address show eth0 | awk '{print $4}')
echo random $(head -c 1024 /dev/urandom | sha256sum)
rm -f /dev/shm/hello
ssl_client -s 3 3<>/dev/shm/hello < /dev/null 2> /dev/null
echo tls $(dd if=/dev/shm/hello bs=1 skip=11 count=32 2>/dev/null | xxd -p -c 32)
echo uuid $(cat /sys/class/dmi/id/product_uuid 2>/dev/null)
"""
KINDS = {"boot", "generation", "machine", "mac", "ipv4", "ipv6", "random", "tls", "uuid"}


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def harness(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setattr(templates, "_WAIT_SECONDS", 0.0)  # the host is busy with tests
    kit_dir = use_kit_dir(KERNELS[kernel][0])
    build_kit(kit_dir, lambda *_: None)
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    made = factory.make_harness(tmp_path, boot_templates=1, kit_dir=kit_dir)
    try:
        yield made
    finally:
        made.close()


def who(harness: Harness, address: GuestAddress) -> dict[str, str]:
    """Return all that tells the machine from others. The connection checks that it has its host key."""
    lines = [line.partition(" ") for line in run(harness, address, WHO).splitlines()]
    found = {kind: value for kind, _, value in lines}
    assert found.keys() == KINDS
    assert len(found["tls"]) == 64
    return found | {"host key": address.host_key}


def require_nothing_in_common(found: Sequence[dict[str, str]], kernel: str) -> None:
    for kind in found[0]:
        values = [each[kind] for each in found]
        if kind == "uuid" and kernel == "own kernel":
            assert set(values) == {""}
        else:
            assert "" not in values
            assert len(set(values)) == len(values), (kind, values)


def start(harness: Harness) -> tuple[GuestAddress, StartedFrom | None]:
    spec = harness.spec()
    identity = harness.driver.prepare(spec)
    began = harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key), began


def await_template(harness: Harness) -> None:
    store = harness.settings.machines_dir / FOLDER  # type: ignore[attr-defined]
    deadline = time.monotonic() + harness.boot_seconds
    while not list(store.glob("boot_*")):
        assert time.monotonic() < deadline, "no template was made"
        time.sleep(0.1)


def test_starts_of_one_template_have_nothing_in_common(harness: Harness, kernel: str) -> None:
    address, began = start(harness)
    assert began is StartedFrom.BOOT
    running, found = [address], [who(harness, address)]
    await_template(harness)
    for _ in range(KERNELS[kernel][1]):
        address, began = start(harness)
        assert began is StartedFrom.TEMPLATE
        running.append(address)
        found.append(who(harness, address))
        if len(running) > AT_ONCE:
            harness.driver.delete(running.pop(0).machine_id)
    require_nothing_in_common(found, kernel)


def test_forks_of_one_guest_have_nothing_in_common_but_their_memory(harness: Harness, kernel: str) -> None:
    parent, _ = start(harness)
    found = [who(harness, parent)]
    nonce = run(harness, parent, "cat /proc/sys/kernel/random/uuid | tee /dev/shm/nonce")
    harness.driver.snapshot(parent.machine_id, "s1")
    running = [parent]
    for _ in range(KERNELS[kernel][2]):
        address = load_fork(harness, "s1")
        running.append(address)
        found.append(who(harness, address))
        assert run(harness, address, "cat /dev/shm/nonce") == nonce
        if len(running) > AT_ONCE:
            harness.driver.delete(running.pop(1).machine_id)
    require_nothing_in_common(found, kernel)
    harness.driver.remove_snapshot("s1")
