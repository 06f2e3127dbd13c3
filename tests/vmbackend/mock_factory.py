"""The libvirt driver over libvirt's mock hypervisor: definitions, states and saved memory; no process and no guest."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmbackend.driver import Driver, EventKind
from vmbackend.guest.kit import Kit
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.libvirt import provisioner
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.settings import LibvirtSettings

from .conftest import Harness
from .libvirt_factory import corrupt_memory, fill_disk, undefine

IMAGE = "sha256:image"
NO_GUEST = "libvirt's mock hypervisor has no guests"


def make_settings(folder: Path, **changes: Any) -> LibvirtSettings:
    image = SimpleNamespace(rootfs=folder / "base")
    fields: dict[str, Any] = {
        "uri": "test:///default",
        "machines_dir": folder / "m",
        "instance": "abcdef",
        "subnet": IPv4Network("10.123.0.0/24"),
        "kit_dir": folder / "kit",
        "control_public_key": "ssh-ed25519 AAAA",
        "images": SimpleNamespace(get=lambda digest: image if digest == IMAGE else None),
        "memory_reserve_mb": 0,
        "disk_reserve_mb": 0,
    }
    return LibvirtSettings(**(fields | changes))


class MockHarness(Harness):
    """Skips tests that need a guest, or a process that can be killed."""

    def wait_event(self, machine_id: str, kind: EventKind, *, seen: int = 0) -> Any:
        if kind is not EventKind.STOPPED:
            self.require_guest()
        return super().wait_event(machine_id, kind, seen=seen)

    def reopen_driver(self) -> None:
        pytest.skip("libvirt's mock hypervisor loses its state when it is closed")


def _no_session(_address: GuestAddress) -> GuestSession:
    pytest.skip(NO_GUEST)


def _no_process(_driver: Driver, _machine_id: str) -> None:
    pytest.skip("libvirt's mock hypervisor has no processes")


def make_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    # No sockets are created, so pytest's long paths are acceptable; the driver would reject them.
    monkeypatch.setattr(LibvirtSettings, "check", lambda _settings: None)
    kit = Kit(kernel=tmp_path / "vmlinux", initrd=tmp_path / "initrd", version="1")
    monkeypatch.setattr(provisioner, "find_kit", lambda _folder: kit)
    settings = make_settings(tmp_path)
    made = MockHarness(
        lambda: LibvirtDriver(settings),
        _no_session,
        IMAGE,
        5.0,
        kill=_no_process,
        corrupt_memory=corrupt_memory,
        undefine=undefine,
        fill_disk=fill_disk,
        without_guest=NO_GUEST,
    )
    monkeypatch.setattr(made.pool, "call", lambda *_arguments: made.require_guest())
    return made
