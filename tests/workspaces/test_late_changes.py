"""A start or a resume renews what its guest missed while the owner changes the same: the guest has the newer one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import asyncssh
import pytest

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces import ssh
from workspaces.errors import GuestUnreachable
from workspaces.models import Activity, Workspace
from workspaces.rows import delete_row
from workspaces.ssh import fingerprint
from workspaces.states import Status
from workspaces.workload_changes import services as workloads

pytestmark = pytest.mark.django_db(transaction=True)
FAR = math.inf  # no end of the time for renewals


class Killed(BaseException):
    """The process dies."""


class LateGuest:
    """Before the first change reaches it, another process changes the same and is done."""

    def __init__(self, before_it: Callable[[], None]) -> None:
        self._before_it: Callable[[], None] | None = before_it
        self.has: list[Any] = []
        self.kills = False  # whether the process that made the first, late change dies then

    def configure(self, wanted: Any) -> None:
        before_it, self._before_it = self._before_it, None
        if before_it is not None:
            before_it()
        self.has.append(wanted)
        if before_it is not None and self.kills:
            raise Killed


def now(row: Workspace) -> Workspace:
    return Workspace.objects.get(pk=row.pk)


def key() -> str:
    line: bytes = asyncssh.generate_private_key("ssh-ed25519").export_public_key()
    return line.decode().strip()


def test_a_key_that_was_revoked_just_before_is_revoked(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    stays, revoked = key(), key()
    row = make_workspace(
        api.account, status=Status.RUNNING, ssh_enabled=True, ssh_keys=[stays, revoked], ssh_stale=True
    )

    def revoke() -> None:
        changed = ssh.ssh_key_remove(workspace=now(row), actor="owner", key=fingerprint(revoked))
        assert ssh.apply_in_guest(changed) is None

    guest = LateGuest(revoke)
    monkeypatch.setattr(ssh, "configure_ssh", lambda each: guest.configure(list(each.ssh_keys)))
    assert ssh.renew_access(now(row), FAR) == ""
    assert guest.has == [[stays], [stays, revoked], [stays]]
    assert now(row).ssh_stale is False


@pytest.mark.parametrize("act", ["renew", "start"])
def test_a_workload_that_was_changed_just_before_is_changed(
    api: Caller, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    items = [{"name": "web", "cmd": ["old"]}]
    row = make_workspace(api.account, status=Status.RUNNING, workloads=items, stale_workloads=["web"])

    def change() -> None:
        changed = workloads.workload_change(workspace=now(row), actor="owner", name="web", changes={"cmd": ["new"]})
        assert workloads.apply_in_guest(changed, "web") is None

    guest = LateGuest(change)
    monkeypatch.setattr(workloads, "configure_workload", lambda _, name, wanted: guest.configure(list(wanted.cmd)))
    monkeypatch.setattr(workloads, "address_of", lambda _: None)
    monkeypatch.setattr(workloads, "guest_pool", StartingPool)
    if act == "renew":
        assert workloads.renew_workloads(now(row), FAR) == ""
    else:
        workloads.workload_start(workspace=now(row), actor="owner", name="web")
    assert guest.has == [["new"], ["old"], ["new"]]
    # Who only starts it does not know whose the mark is.
    assert now(row).stale_workloads == ([] if act == "renew" else ["web"])


class StartingPool:
    """A guest that starts every workload."""

    def call(self, *_: Any) -> None: ...


def applied_elsewhere(row: Workspace, revoked: str) -> None:
    """Another request revokes the key, applies that, and is done."""
    changed = ssh.ssh_key_remove(workspace=now(row), actor="owner", key=fingerprint(revoked))
    assert ssh.apply_in_guest(changed) is None
    assert now(row).ssh_stale is False


@pytest.mark.parametrize("then", ["paused", "unreachable", "changed again"])
def test_who_cannot_make_up_for_an_older_key_leaves_it_marked(
    api: Caller, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    stays, revoked = key(), key()
    row = make_workspace(api.account, status=Status.RUNNING, ssh_enabled=True, ssh_keys=[stays, revoked])
    guest = LateGuest(lambda: applied_elsewhere(row, revoked))

    def configure(each: Workspace) -> None:
        late = len(guest.has) >= 2
        if late and then == "unreachable":
            raise GuestUnreachable
        guest.configure(list(each.ssh_keys))
        if len(guest.has) == 2 and then == "paused":
            Workspace.objects.filter(pk=row.pk).update(status=Status.PAUSED)
        if late or (then == "changed again" and len(guest.has) == 2):
            Workspace.objects.filter(pk=row.pk).update(ssh_keys=[stays, key()])

    monkeypatch.setattr(ssh, "configure_ssh", configure)
    assert ssh.apply_in_guest(now(row)) is not None
    assert guest.has[1] == [stays, revoked]
    assert now(row).ssh_stale is True


def test_who_cannot_make_up_for_an_older_workload_leaves_it_marked(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_workspace(api.account, status=Status.RUNNING, workloads=[{"name": "web", "cmd": ["old"]}])

    def change() -> None:
        changed = workloads.workload_change(workspace=now(row), actor="owner", name="web", changes={"cmd": ["new"]})
        assert workloads.apply_in_guest(changed, "web") is None
        assert now(row).stale_workloads == []
        Workspace.objects.filter(pk=row.pk).update(status=Status.PAUSED)

    guest = LateGuest(change)
    monkeypatch.setattr(workloads, "configure_workload", lambda _, name, wanted: guest.configure(list(wanted.cmd)))
    assert workloads.apply_in_guest(now(row), "web") is not None
    assert guest.has == [["new"], ["old"]]
    assert now(row).stale_workloads == ["web"]


def test_a_process_that_dies_after_an_older_key_was_applied_late_leaves_it_marked(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays, revoked, added = key(), key(), key()
    row = make_workspace(api.account, status=Status.RUNNING, ssh_enabled=True, ssh_keys=[stays, revoked])
    older = ssh.ssh_key_add(workspace=now(row), actor="owner", line=added)

    def revoke() -> None:
        changed = ssh.ssh_key_remove(workspace=now(row), actor="owner", key=fingerprint(revoked))
        assert ssh.apply_in_guest(changed) is None

    guest = LateGuest(revoke)
    monkeypatch.setattr(ssh, "configure_ssh", lambda each: guest.configure(list(each.ssh_keys)))
    guest.kills = True
    with pytest.raises(Killed):
        ssh.apply_in_guest(older)
    assert guest.has == [[stays, added], [stays, revoked, added]]
    assert now(row).ssh_stale is True
    assert ssh.renew_access(now(row), FAR) == ""
    assert (guest.has[-1], now(row).ssh_stale) == ([stays, added], False)


def test_a_process_that_dies_after_an_older_workload_was_applied_late_leaves_it_marked(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_workspace(api.account, status=Status.RUNNING, workloads=[{"name": "web", "cmd": ["old"]}])
    changes = {"workspace": now(row), "actor": "owner", "name": "web"}
    older = workloads.workload_change(**changes, changes={"cmd": ["older"]})

    def change() -> None:
        changed = workloads.workload_change(**{**changes, "workspace": now(row)}, changes={"cmd": ["new"]})
        assert workloads.apply_in_guest(changed, "web") is None

    guest = LateGuest(change)
    monkeypatch.setattr(workloads, "configure_workload", lambda _, name, wanted: guest.configure(list(wanted.cmd)))
    guest.kills = True
    with pytest.raises(Killed):
        workloads.apply_in_guest(older, "web")
    assert guest.has == [["new"], ["older"]]
    assert now(row).stale_workloads == ["web"]
    assert workloads.renew_workloads(now(row), FAR) == ""
    assert (guest.has[-1], now(row).stale_workloads) == (["new"], [])


@pytest.mark.parametrize("renewed", ["ssh", "workloads"])
def test_a_workspace_that_was_deleted_just_before_is_no_fault(
    api: Caller, monkeypatch: pytest.MonkeyPatch, renewed: str
) -> None:
    items = [{"name": "web", "cmd": ["old"]}]
    row = make_workspace(api.account, status=Status.RUNNING, ssh_stale=True, workloads=items, stale_workloads=["web"])
    guest = LateGuest(lambda: delete_row(row))
    monkeypatch.setattr(ssh, "configure_ssh", guest.configure)
    monkeypatch.setattr(workloads, "configure_workload", lambda *_: guest.configure("web"))
    held = now(row)
    assert (ssh.renew_access if renewed == "ssh" else workloads.renew_workloads)(held, FAR) == ""
    assert len(guest.has) == 1
    assert not Activity.objects.filter(action__endswith="_not_changed").exists()


def test_a_key_that_is_revoked_again_is_revoked_though_the_row_is_as_before(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is as the first request left it; the process of the last one died before it reached the guest."""
    line = key()
    row = make_workspace(api.account, status=Status.RUNNING, ssh_enabled=True, ssh_keys=[line])
    has: list[list[str]] = []

    def revoked() -> Workspace:
        return ssh.ssh_key_remove(workspace=now(row), actor="owner", key=fingerprint(line))

    def configure(each: Workspace) -> None:
        has.append(list(each.ssh_keys))
        if len(has) == 1:
            ssh.apply_in_guest(ssh.ssh_key_add(workspace=now(row), actor="owner", line=line))
            revoked()

    first = revoked()
    monkeypatch.setattr(ssh, "configure_ssh", configure)
    ssh.apply_in_guest(first)
    assert has == [[], [line], []]


def test_a_workload_that_is_changed_back_stays_marked_until_the_guest_has_it(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_workspace(api.account, status=Status.RUNNING, workloads=[{"name": "web", "cmd": ["old"]}])
    has: list[list[str]] = []

    def changed(to: str) -> Workspace:
        return workloads.workload_change(workspace=now(row), actor="owner", name="web", changes={"cmd": [to]})

    def configure(_: Workspace, name: str, wanted: Any) -> None:
        has.append(list(wanted.cmd))
        if len(has) == 1:
            workloads.apply_in_guest(changed("old"), "web")
            changed("new")

    first = changed("new")
    monkeypatch.setattr(workloads, "configure_workload", configure)
    workloads.apply_in_guest(first, "web")
    assert (has[-1], now(row).stale_workloads) == (["old"], ["web"])
