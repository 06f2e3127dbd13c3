"""A process that dies while it sets a machine aside: the next one does the rest, and no file is lost."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from vmbackend.driver import MachineState
from vmbackend.libvirt import domain
from vmbackend.libvirt.driver import LibvirtDriver

from .conftest import Harness

pytestmark = pytest.mark.vm


def die(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("owner", "step"), [(domain, "undefine_domain"), (LibvirtDriver, "_withdraw"), (Path, "rename")],
    ids=["its process has ended", "libvirt has forgotten it", "its port is gone"],
)  # fmt: skip
def test_what_a_dead_process_began_to_set_aside_is_set_aside_by_the_next(
    libvirt_harness: Harness, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str
) -> None:
    key = libvirt_harness.sleeping_machine(epoch=4).machine_id
    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(owner, step, die)
        libvirt_harness.driver.set_aside(key)
    assert libvirt_harness.driver.kept_orphans() == ()
    libvirt_harness.reopen_driver()
    assert libvirt_harness.driver.epoch_of(key) == 4
    libvirt_harness.driver.set_aside(key)
    assert libvirt_harness.driver.state(key) is MachineState.ABSENT
    assert key not in libvirt_harness.driver.inventory().ids()
    [kept] = libvirt_harness.driver.kept_orphans()
    folder = libvirt_harness.driver._settings.machines_dir / ".orphans" / kept.name  # type: ignore[attr-defined]
    assert {"memory", "memory.seal", "data.raw", "machine.json"} <= {path.name for path in folder.iterdir()}
    libvirt_harness.driver.remove_orphan(kept.name)
