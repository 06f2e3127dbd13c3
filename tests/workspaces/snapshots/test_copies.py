"""Restoring a workspace, and creating one from a snapshot."""

from __future__ import annotations

import asyncssh
import pytest

from accounts.models import Plan
from namespaces.models import Namespace
from tests.workspaces.snapshots.conftest import Parent
from tests.workspaces.test_ssh import in_guest
from tests.workspaces.workspace_states import bring, status_of
from vmbackend.copies import Difference
from workspaces.models import Activity, Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
DIFFERS = Difference("QEMU", "7.2", "10.0")


@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSED, Status.SLEEPING, Status.STOPPED])
def test_a_workspace_goes_back_to_its_newest_snapshot(parent: Parent, status: Status) -> None:
    parent.keep(name="old")
    parent.set_state("second")
    made = parent.keep(name="new")
    parent.set_state("third")
    before = parent.api.get(f"/workspace/{parent.id}").json()["workspace"]
    bring(parent.api, parent.vmhost, parent.id, status)
    answer = parent.api.post(f"/workspace/{parent.id}/restore")
    assert answer.status_code == 200, answer.json()
    after = answer.json()["workspace"]
    assert parent.state() == ("second", "second")
    assert (after["status"], after["ready"], after["started_from"]) == ("running", True, "snapshot")
    assert after["source_snapshot_id"] == made["id"]
    same = ("id", "ip", "slug", "name", "namespace", "network", "resources", "mode")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert Activity.objects.filter(action="restored", workspace_id=parent.id).count() == 1


def test_a_snapshot_is_named_by_name_or_id(parent: Parent) -> None:
    made = parent.keep(name="old")
    parent.set_state("second")
    parent.keep(name="new")
    for identifier in ("old", made["id"]):
        parent.set_state("third")
        assert parent.api.post(f"/workspace/{parent.id}/restore", {"snapshot": identifier}).status_code == 200
        assert parent.state() == ("first", "first")


def test_without_memory_it_boots_from_the_disk(parent: Parent) -> None:
    parent.keep()
    parent.set_state("second")
    answer = parent.api.post(f"/workspace/{parent.id}/restore", {"memory": False})
    assert answer.json()["workspace"]["started_from"] == "boot"
    assert parent.state() == ("first", "")
    assert Activity.objects.filter(action="started_cold").count() == 1


def test_memory_brings_its_sizes_with_it(parent: Parent) -> None:
    parent.keep()
    sizes = {"memory_mb": 768, "disk_size_mb": 600}
    assert parent.api.put(f"/workspace/{parent.id}/resources", {**sizes, "apply": True}).status_code == 200
    assert parent.api.post(f"/workspace/{parent.id}/restore").status_code == 200
    row = Workspace.objects.get()
    assert (row.memory_mb, row.applied_memory_mb, row.disk_size_mb) == (512, 512, 600)


@pytest.mark.parametrize(
    ("plan", "limits", "status", "code"),
    [
        ({"memory_mb": 768}, {}, 403, "RESOURCE_NOT_ALLOWED"),
        ({"cpus": 1}, {}, 403, "RESOURCE_NOT_ALLOWED"),
        ({}, {"max_ram_mb": 768}, 409, "NAMESPACE_LIMIT_REACHED"),
        ({}, {"max_vcpus": 1}, 409, "NAMESPACE_LIMIT_REACHED"),
    ],
)
def test_sizes_that_are_not_allowed_any_more_do_not_come_back(
    parent: Parent, plan: dict[str, int], limits: dict[str, int], status: int, code: str
) -> None:
    resources = f"/workspace/{parent.id}/resources"
    assert parent.api.put(resources, {"memory_mb": 1024, "cpus": 2, "apply": True}).status_code == 200
    parent.keep()
    assert parent.api.put(resources, {"memory_mb": 512, "cpus": 1, "apply": True}).status_code == 200
    Plan.objects.update(**plan)
    Namespace.objects.update(resource_limits=limits)
    answer = parent.api.post(f"/workspace/{parent.id}/restore")
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.json()
    assert Workspace.objects.get().memory_mb == 512
    assert parent.api.post(f"/workspace/{parent.id}/restore", {"memory": False}).status_code == 200


def test_nothing_to_restore_is_404(parent: Parent) -> None:
    other = parent.create(name="other")["id"]
    made = parent.keep(name="one")
    for body in ({}, {"snapshot": "one"}, {"snapshot": made["id"]}, {"snapshot": "none"}):
        answer = parent.api.post(f"/workspace/{other}/restore", body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_new_workspace_goes_on_from_a_snapshot(parent: Parent) -> None:
    parent.api.put(f"/workspace/{parent.id}", {"config": {"env": ["OLD=1", "BOTH=1"]}})
    parent.api.put(f"/workspace/{parent.id}/network", {"allow_internet": False})
    made = parent.keep(name="one")
    copy = parent.create(snapshot="one", config={"env": ["NEW=1", "BOTH=2"]})
    assert parent.state(copy["id"]) == parent.state() == ("first", "first")
    assert (copy["started_from"], copy["source_snapshot_id"]) == ("snapshot", made["id"])
    assert copy["id"] != parent.id
    assert copy["ip"] != parent.api.get(f"/workspace/{parent.id}").json()["workspace"]["ip"]
    assert copy["network"]["allow_internet"] is False
    assert Workspace.objects.get(pk=copy["id"]).env == {"OLD": "1", "BOTH": "2", "NEW": "1"}
    shown = parent.api.get(f"/snapshots/{made['id']}").json()["snapshot"]
    assert shown["dependants"] == 1
    assert shown["last_used_at"] is not None


def test_a_new_workspace_boots_from_a_snapshots_disk(parent: Parent) -> None:
    parent.keep(name="one")
    copy = parent.create(snapshot="one", memory=False, config={"memory_mb": 768, "disk_size_mb": 1024})
    assert copy["started_from"] == "boot"
    assert copy["resources"] == {"cpus": 1.0, "memory_mb": 768, "disk_size_mb": 1024}
    assert parent.state(copy["id"]) == ("first", "")


def test_copies_outlive_what_they_were_made_from(parent: Parent) -> None:
    made = parent.keep(name="one")
    copy = parent.create(snapshot="one")["id"]
    assert parent.api.delete(f"/snapshots/{made['id']}").status_code == 200
    assert parent.api.delete(f"/workspace/{parent.id}").status_code == 200
    assert parent.stored() == set()
    assert parent.state(copy) == ("first", "first")
    assert Workspace.objects.get().source_snapshot_id == made["id"]
    bring(parent.api, parent.vmhost, copy, Status.STOPPED)
    assert parent.api.post(f"/workspace/{copy}/start").status_code == 200
    assert parent.state(copy) == ("first", "")


def test_memory_that_does_not_fit_the_host_is_refused(parent: Parent) -> None:
    made = parent.keep(name="one")
    parent.set_state("second")
    parent.vmhost.driver.set_differences(made["id"], DIFFERS)
    differs = [{"what": "QEMU", "snapshot": "7.2", "host": "10.0"}]
    for path, body in ((f"/workspace/{parent.id}/restore", {}), ("/workspace", {"snapshot": "one"})) * 2:
        answer = parent.api.post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (409, "snapshot_incompatible"), answer.json()
        assert answer.json()["details"]["differs"] == differs
    assert parent.state() == ("second", "second")
    assert status_of(parent.id) == Status.RUNNING
    shown = parent.api.get(f"/snapshots/{made['id']}").json()["snapshot"]
    assert shown["usable"] is False
    assert "QEMU" in shown["unusable_reason"]
    assert parent.api.post(f"/workspace/{parent.id}/restore", {"memory": False}).status_code == 200
    assert parent.state() == ("first", "")


def test_copies_take_over_no_key_no_public_port_and_no_metadata(parent: Parent) -> None:
    """Forks and new workspaces alike; the parent keeps what it has."""
    path = f"/workspace/{parent.id}"
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    assert parent.api.post(f"{path}/ssh/key", {"public_key": key}).status_code == 200
    assert parent.api.post(f"{path}/ssh/enable").status_code == 200
    assert parent.api.post(f"{path}/public-access", {"port": 8080}).status_code == 201
    Workspace.objects.filter(pk=parent.id).update(metadata={"a": 1})
    parent.keep(name="one")
    copies = [parent.create(snapshot="one")["id"]]
    copies.append(parent.api.post(f"{path}/fork").json()["forks"][0]["workspace"]["id"])

    def opened(workspace: str) -> tuple[bool, int, int, bool]:
        ssh = parent.api.get(f"/workspace/{workspace}/ssh").json()["ssh"]
        ports = parent.api.get(f"/workspace/{workspace}/public-access").json()["ports"]
        row = Workspace.objects.get(pk=workspace)
        return bool(ssh["ssh_enabled"]), len(ssh["keys"]), len(ports), bool(row.metadata)

    assert opened(parent.id) == (True, 1, 1, True)
    assert [opened(copy) for copy in copies] == [(False, 0, 0, False)] * 2
    assert in_guest(parent.id) == [key]
    assert [in_guest(copy) for copy in copies] == [None, None]
