"""An operation that the host has no room for is refused before the machine is ended: its memory and its disk stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.workspaces.snapshots.conftest import Parent
from tests.workspaces.workspace_states import bring, status_of
from vmbackend.errors import ImageUnreachable
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
KEEPS_MEMORY = (Status.RUNNING, Status.PAUSED)


@pytest.fixture
def full(parent: Parent) -> Iterator[Any]:
    """Leaves the host that much of disk and of memory; the fake's size outlives a test."""
    driver = parent.vmhost.driver
    size = driver.capacity()

    def leave(disk_mb: int = 1 << 19, memory_mb: int = 1 << 15) -> None:
        free = driver.capacity()
        used_disk, used_memory = free.disk_mb - free.disk_free_mb, free.memory_mb - free.memory_free_mb
        driver.set_capacity(replace(free, disk_mb=used_disk + disk_mb, memory_mb=used_memory + memory_mb))

    yield leave
    driver.set_capacity(size)


def refused(parent: Parent, path: str, body: Any = None, *, resource: str = "disk_size_mb") -> None:
    """Refused for want of room, and the workspace is as it was."""
    before = Workspace.objects.values("status", "started_at", "applied_memory_mb", "applied_disk_size_mb").get()
    answer = parent.api.post(f"/workspace/{parent.id}/{path}", body or {})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE"), answer.json()
    assert answer.json()["details"] == {"reason": "no_room", "resource": resource}
    assert Workspace.objects.values(*before).get() == before
    if before["status"] in KEEPS_MEMORY:
        assert parent.vmhost.driver.memory_of(parent.id) == "second"


@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSED, Status.SLEEPING, Status.STOPPED])
def test_a_restore_whose_disk_has_no_room(parent: Parent, full: Any, status: Status) -> None:
    parent.keep()
    parent.set_state("second")
    bring(parent.api, parent.vmhost, parent.id, status)
    full(disk_mb=4)
    refused(parent, "restore")
    parent.vmhost.driver.set_capacity(replace(parent.vmhost.driver.capacity(), disk_mb=1 << 20))
    if status != Status.RUNNING:
        parent.api.post(f"/workspace/{parent.id}/{'resume' if status != Status.STOPPED else 'start'}")
    assert parent.run("cat note") == "second"


@pytest.mark.parametrize("status", [Status.SLEEPING, Status.STOPPED])
def test_a_restore_whose_memory_has_no_room(parent: Parent, full: Any, status: Status) -> None:
    parent.keep()
    parent.set_state("second")
    bring(parent.api, parent.vmhost, parent.id, status)
    full(memory_mb=511)
    refused(parent, "restore", resource="memory_mb")
    assert status_of(parent.id) == status


def test_a_restore_of_a_running_one_needs_no_memory_beyond_its_own(parent: Parent, full: Any) -> None:
    parent.keep()
    full(memory_mb=0)
    assert parent.api.post(f"/workspace/{parent.id}/restore").status_code == 200


@pytest.mark.parametrize("path", ["restart", "reinstall"])
@pytest.mark.parametrize(("resource", "size"), [("disk_size_mb", 1024), ("memory_mb", 1024)])
def test_saved_sizes_that_have_no_room(parent: Parent, full: Any, path: str, resource: str, size: int) -> None:
    parent.set_state("second")
    assert parent.api.put(f"/workspace/{parent.id}/resources", {resource: size}).status_code == 200
    full(**{"disk_mb" if resource == "disk_size_mb" else "memory_mb": 500})
    refused(parent, path, resource=resource)


@pytest.mark.parametrize("path", ["restart", "reinstall", "restore"])
def test_an_image_that_is_gone_and_cannot_be_had(parent: Parent, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parent.keep()
    parent.set_state("second")

    def unreachable(*_: object, **__: object) -> None:
        raise ImageUnreachable("The registry does not answer.")

    monkeypatch.setattr(parent.vmhost.images, "get", lambda _: None)
    monkeypatch.setattr(parent.vmhost.images, "ensure", unreachable)
    answer = parent.api.post(f"/workspace/{parent.id}/{path}")
    assert (answer.status_code, answer.json()["details"]["reason"]) == (503, "image_unreachable"), answer.json()
    assert parent.state() == ("second", "second")
    assert status_of(parent.id) == Status.RUNNING
