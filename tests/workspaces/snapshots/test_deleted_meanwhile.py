"""A snapshot that is deleted while a request that needs it is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.threads import run_at_once
from tests.workspaces.snapshots.conftest import Parent
from workspaces.crud import source
from workspaces.host.steps import snapshot as steps
from workspaces.models import Snapshot, Workspace
from workspaces.snapshots import services

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def deleted_after_the_check(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Return a function that has the snapshot deleted, with its files, once the module has checked it."""

    def remove(_: int) -> None:
        services.snapshot_remove(snapshot=Snapshot.objects.get(), actor="test")

    def during(module: Any) -> None:
        checked = module.use_snapshot

        def deletes(*args: Any) -> Any:
            found = checked(*args)
            assert run_at_once(1, remove) == ["done"]
            assert parent.stored() == set()
            return found

        monkeypatch.setattr(module, "use_snapshot", deletes)

    return during


def refused(answer: Any) -> None:
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), answer.json()


@pytest.mark.parametrize("path", ["/workspace", "/sandbox"])
def test_a_create_is_refused_and_leaves_no_workspace(
    parent: Parent, deleted_after_the_check: Callable[[Any], None], path: str
) -> None:
    parent.keep(name="one")
    deleted_after_the_check(source)
    refused(parent.api.post(path, {"name": "copy", "snapshot": "one"}))
    assert Workspace.objects.count() == 1


def test_a_restore_is_refused_and_the_workspace_goes_on(
    parent: Parent, deleted_after_the_check: Callable[[Any], None]
) -> None:
    parent.keep()
    parent.set_state("second")
    deleted_after_the_check(services)
    refused(parent.api.post(f"/workspace/{parent.id}/restore"))
    row = Workspace.objects.get()
    assert (row.status, row.error_code, parent.state()) == ("running", "", ("second", "second"))


def test_a_request_that_waits_for_one_is_answered_like_those_that_come_later(parent: Parent) -> None:
    path, keep_state = f"/workspace/{parent.id}/snapshot", parent.vmhost.driver.snapshot

    def deletes_first(*args: Any, **options: Any) -> Any:
        services.snapshot_remove(snapshot=Snapshot.objects.get(), actor="test")
        return keep_state(*args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parent.vmhost.driver, "snapshot", deletes_first)
        refused(parent.api.post(path))
    assert parent.stored() == set()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(steps, "snapshot_of", lambda _: None)  # before its operation began
        refused(parent.api.post(path))
    assert Workspace.objects.get().status == "running"


def test_files_that_are_lost_are_no_snapshot_to_go_back_to(parent: Parent) -> None:
    made = parent.keep()
    parent.vmhost.driver.remove_snapshot(made["id"])
    for body in ({}, {"memory": False}):
        refused(parent.api.post(f"/workspace/{parent.id}/restore", body))
    assert parent.state() == ("first", "first")


def test_one_that_expires_while_a_copy_waits_for_its_turn_is_kept_until_then(parent: Parent) -> None:
    parent.keep(name="one", ttl=60)
    parent.vmhost.hold_tasks()
    answer = parent.api.post("/workspace", {"snapshot": "one", "wait_ready": False})
    made = answer.json()["id"]
    services.snapshot_remove(snapshot=Snapshot.objects.get(), actor="ttl")
    parent.vmhost.release_tasks()
    parent.vmhost.settle()
    assert parent.state(made) == ("first", "first")
    assert parent.stored() == set()
    assert not Snapshot.objects.exists()
