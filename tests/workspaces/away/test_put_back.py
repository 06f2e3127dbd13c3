"""Files that a host has kept of a workspace, put back by staff: the lost host comes back, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from staff.models import StaffEntry
from tests.callers import Caller
from tests.fakehost import Died, FakeHost
from tests.hosts.rows import staff_token
from tests.workspaces.away.conftest import CutOff
from tests.workspaces.rows import end_leases, make_host
from vmbackend.errors import BackendUnavailable
from vmbackend.models import Host
from webhooks.models import Event
from workspaces import kept_orphans
from workspaces.host.host_sweep import sweep_hosts
from workspaces.host.ownership import KEPT_FOR
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host_changes import host_give_up, host_state_change
from workspaces.models import Activity, Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
NOTE = "of before"


def note(host: FakeHost, key: str) -> str:
    path = host.driver._store.directory(key) / "disk" / "note"
    return path.read_text() if path.exists() else ""


def write_note(host: FakeHost, key: str, text: str = NOTE) -> None:
    (host.driver._store.directory(key) / "disk" / "note").write_text(text)


@pytest.fixture
def lost(cut_off: CutOff, made: str) -> str:
    """The id of a workspace whose host was given up, came back, set it aside, and is active again."""
    write_note(cut_off.host, made)
    cut_off.leave()
    host = Host.objects.get()
    host_give_up(host_id=host.pk, confirm=host.name)
    sweep_hosts()
    cut_off.come_back()
    reconcile(cut_off.host)
    host_state_change(host_id=host.pk, to="active")  # type: ignore[arg-type]
    return made


def reconcile(host: FakeHost) -> None:
    reconcile_rows_and_machines(host.runtime)
    host.settle()


def send(method: str, path: str, body: str = '{"reason": "it is back"}') -> Any:
    headers = {"Authorization": f"Bearer {staff_token()}"}
    path = f"/staff/hosts/{Host.objects.get(name='local').pk}/orphans{path}"
    return Client().generic(method, path, body, content_type="application/json", headers=headers)


def put_back(key: str) -> Any:
    return send("POST", f"/{key}/put-back")


def state_of(key: str) -> tuple[str, int, str]:
    row = Workspace.objects.get(pk=key)
    return row.status, row.epoch, row.error_code


def require_started(api: Caller, host: FakeHost, key: str, text: str = NOTE) -> None:
    answer = api.post(f"/workspace/{key}/start")
    assert answer.status_code == 200, answer.json()
    host.settle()
    assert (state_of(key)[0], note(host, key)) == ("running", text)
    assert host.driver.epoch_of(key) == Workspace.objects.get(pk=key).epoch
    assert not Activity.objects.filter(workspace_id=key, action="disk_lost").exists()


def test_a_lost_workspace_is_stopped_with_its_files_and_starts_with_them(
    api: Caller, cut_off: CutOff, lost: str
) -> None:
    before = Workspace.objects.get()
    events = Event.objects.count()
    shown = send("GET", "").json()["orphans"]
    assert [(each["workspace_id"], each["workspace_status"]) for each in shown] == [(lost, "lost")]
    answer = put_back(lost)
    assert answer.status_code == 200, answer.content
    assert answer.json() == {
        "success": True, "workspace_id": lost, "status": "stopped", "host": "local", "ip": before.ip,
        "epoch": before.epoch + 1,
    }  # fmt: skip
    assert state_of(lost) == ("stopped", before.epoch + 1, "")
    assert (send("GET", "").json()["orphans"], Event.objects.count()) == ([], events)
    entry = StaffEntry.objects.get(action="workspace.put_back")
    assert (entry.object_id, entry.account_id, entry.reason) == (lost, api.account.pk, "it is back")
    assert "it is back" in Activity.objects.get(action="put_back").detail
    reconcile(cut_off.host)
    require_started(api, cut_off.host, lost)
    assert put_back(lost).status_code == 404


def test_another_account_sees_nothing_of_it(stranger: Caller, lost: str) -> None:
    assert put_back(lost).status_code == 200
    assert stranger.get(f"/workspace/{lost}").status_code == 404
    assert lost not in str(stranger.get("/workspaces").json()) + str(stranger.get("/activity").json())


def test_the_newest_of_several_is_put_back(api: Caller, cut_off: CutOff, lost: str) -> None:
    driver = cut_off.host.driver
    (older,) = driver.kept_orphans()
    aside = driver._store.root / "orphans"
    (aside / older.name).rename(aside / f"{lost}.9.{int(time.time())}")
    (aside / f"{lost}.4.{int(time.time())}" / "disk").mkdir(parents=True)
    (aside / f"{lost}.4.{int(time.time())}" / "epoch").write_text("4")
    reconcile(cut_off.host)
    assert put_back(lost).json()["epoch"] == 10
    assert [orphan.epoch for orphan in driver.kept_orphans()] == [4]
    require_started(api, cut_off.host, lost)


def test_a_host_with_newer_files_than_the_database_gives_them_back(api: Caller, cut_off: CutOff, made: str) -> None:
    """The rows are of an older backup than the machines."""
    host = cut_off.host
    write_note(host, made)
    driver = host.driver
    Workspace.objects.update(epoch=1)
    driver._store.write(driver._store.directory(made) / "epoch", "5")
    reconcile(host)
    assert state_of(made)[0] in ("lost", "stopped")
    assert put_back(made).json()["epoch"] == 6
    require_started(api, host, made)


def test_a_stopped_workspace_with_an_older_disk_here_keeps_it(api: Caller, cut_off: CutOff, lost: str) -> None:
    assert put_back(lost).status_code == 200
    require_started(api, cut_off.host, lost)
    assert api.post(f"/workspace/{lost}/stop").status_code in (200, 202)
    cut_off.host.settle()
    aside = cut_off.host.driver._store.root / "orphans"
    (aside / f"{lost}.90.{int(time.time())}" / "disk").mkdir(parents=True)
    (aside / f"{lost}.90.{int(time.time())}" / "epoch").write_text("90")
    reconcile(cut_off.host)
    before = state_of(lost)
    assert (put_back(lost).status_code, state_of(lost)) == (409, before)
    require_started(api, cut_off.host, lost)


def test_a_workspace_whose_former_host_is_gone_moves_to_the_one_that_has_its_files(
    api: Caller, cut_off: CutOff, lost: str
) -> None:
    gone = make_host("gone")
    Host.objects.filter(pk=gone.pk).update(state="gone", subnet="10.201.0.0/20")
    Workspace.objects.update(host=gone, ip="10.201.0.9")
    reconcile(cut_off.host)
    body = put_back(lost).json()
    assert body["host"] == "local"
    row = Workspace.objects.get()
    assert (row.host.name, row.ip) == ("local", body["ip"])  # type: ignore[union-attr]
    assert row.ip.startswith("10.200.")  # type: ignore[union-attr]
    require_started(api, cut_off.host, lost)


def test_memory_is_not_used_again(api: Caller, cut_off: CutOff, made: str) -> None:
    host = cut_off.host
    write_note(host, made)
    assert api.post(f"/workspace/{made}/sleep").status_code in (200, 202)
    host.settle()
    driver = host.driver
    driver._store.write(driver._store.directory(made) / "epoch", "5")
    reconcile(host)
    assert put_back(made).json()["status"] == "stopped"
    reconcile(host)
    require_started(api, host, made)


# Deaths and races between both halves


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen once the host has put the files back, before the row says so."""
    real = kept_orphans.call_host

    def called(*arguments: Any) -> bytes:
        answer = real(*arguments)
        monkeypatch.undo()
        act()
        return answer

    monkeypatch.setattr(kept_orphans, "call_host", called)


def die() -> None:
    raise Died


def test_a_death_before_the_row_is_written_leaves_an_orphan_that_can_be_put_back(
    api: Caller, cut_off: CutOff, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(lost)
    with monkeypatch.context() as patched, suppress(Died):
        between(patched, die)
        put_back(lost)
    assert (state_of(lost), StaffEntry.objects.count()) == (before, 0)
    assert api.post(f"/workspace/{lost}/start").status_code == 409
    reconcile(cut_off.host)
    [kept] = cut_off.host.driver.kept_orphans()
    assert (kept.machine_id, kept.epoch) == (lost, before[1] + 1)
    assert put_back(lost).status_code == 200
    require_started(api, cut_off.host, lost)


def test_the_same_request_after_a_death_goes_on(
    api: Caller, cut_off: CutOff, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Host.objects.get().orphans
    with monkeypatch.context() as patched, suppress(Died):
        between(patched, die)
        put_back(lost)
    Host.objects.update(orphans=listed)  # the host died, too, before it reported
    assert put_back(lost).status_code == 200
    require_started(api, cut_off.host, lost)


@pytest.mark.parametrize("heals", ["reconcile", "start"])
def test_one_that_is_set_aside_just_before_the_row_is_written_is_put_back_by_the_host(
    api: Caller, cut_off: CutOff, lost: str, monkeypatch: pytest.MonkeyPatch, heals: str
) -> None:
    with monkeypatch.context() as patched:
        between(patched, lambda: reconcile(cut_off.host))
        assert put_back(lost).status_code == 200
    assert len(cut_off.host.driver.kept_orphans()) == 1
    if heals == "reconcile":
        [kept] = cut_off.host.driver.kept_orphans()
        cut_off.host.driver.keep_since(kept.name, time.time() - KEPT_FOR.total_seconds() - 60)
        reconcile(cut_off.host)
        assert note(cut_off.host, lost) == NOTE
    require_started(api, cut_off.host, lost)
    assert cut_off.host.driver.kept_orphans() == ()


CHANGES: dict[str, tuple[Callable[[Caller, str], None], int]] = {
    "deleted": (lambda api, key: Workspace.objects.filter(pk=key).delete() and None, 404),
    "another assignment": (lambda api, key: Workspace.objects.filter(pk=key).update(epoch=50) and None, 409),
    "running": (lambda api, key: Workspace.objects.update(status="running") and None, 409),
    "the host drains": (lambda api, key: Host.objects.update(state="draining") and None, 409),
    "the host is silent": (lambda api, key: end_leases(), 409),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_meanwhile_is_refused_and_nothing_is_lost(
    api: Caller, cut_off: CutOff, lost: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    act, status = CHANGES[change]
    monkeypatch.setattr(settings.ENV, "orphan_grace_seconds", 0)
    with monkeypatch.context() as patched:
        between(patched, lambda: act(api, lost))
        assert put_back(lost).status_code == status
    assert not StaffEntry.objects.exists()
    Workspace.objects.filter(status="running").update(status="lost")
    reconcile(cut_off.host)
    [kept] = cut_off.host.driver.kept_orphans()
    assert kept.machine_id == lost
    assert (cut_off.host.driver._store.root / "orphans" / kept.name / "disk" / "note").read_text() == NOTE


@pytest.mark.parametrize("point", ["put_back", "put_back:written"])
def test_a_host_that_cannot_put_it_back_says_so(cut_off: CutOff, lost: str, point: str) -> None:
    before = state_of(lost)
    cut_off.host.driver.fail_next(point, BackendUnavailable("The disk does not answer."))
    answer = put_back(lost)
    assert (answer.status_code, answer.json()["message"]) == (503, "The disk does not answer.")
    assert (state_of(lost), len(cut_off.host.driver.kept_orphans())) == (before, 1)
    assert put_back(lost).status_code == 200


def test_a_host_that_does_not_answer_has_changed_no_row(
    cut_off: CutOff, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(lost)
    with monkeypatch.context() as patched:
        patched.setattr("workspaces.host_rpc.REPLY_SECONDS", 0.2)
        cut_off.host.hold_tasks()
        assert put_back(lost).status_code == 503
        assert state_of(lost) == before
    cut_off.host.release_tasks()  # it was only late
    cut_off.host.settle()
    assert state_of(lost) == before
    reconcile(cut_off.host)
    assert put_back(lost).status_code == 200


# Removal


def test_what_is_kept_is_removed_at_once(cut_off: CutOff, lost: str) -> None:
    [kept] = cut_off.host.driver.kept_orphans()
    assert send("DELETE", f"/{lost}", '{"reason": "why", "name": "ws_other.1.2"}').status_code == 404
    before = state_of(lost)
    assert send("DELETE", f"/{lost}").json() == {"success": True, "removed": [kept.name]}
    assert (cut_off.host.driver.kept_orphans(), Host.objects.get().orphans, state_of(lost)) == ((), [], before)
    entries = StaffEntry.objects.filter(action="host.remove_orphans").order_by("pk")
    assert [entry.outcome for entry in entries] == ["begun", "refused", "begun", "done"]
    assert entries.last().detail == kept.name  # type: ignore[union-attr]
    assert send("DELETE", f"/{lost}?reason=why", "").status_code == 404
    assert put_back(lost).status_code == 404


def test_what_is_kept_of_a_deleted_workspace_is_removed_but_not_put_back(
    api: Caller, cut_off: CutOff, lost: str
) -> None:
    assert api.delete(f"/workspace/{lost}").status_code in (200, 202)
    cut_off.host.settle()
    assert not Workspace.objects.exists()
    assert len(cut_off.host.driver.kept_orphans()) == 1
    assert put_back(lost).status_code == 404
    assert send("DELETE", f"/{lost}").status_code == 200
    assert cut_off.host.driver.kept_orphans() == ()


def test_a_removal_that_fails_is_asked_for_again(cut_off: CutOff, lost: str) -> None:
    cut_off.host.driver.fail_next("remove_orphan:half", BackendUnavailable("Not now."))
    assert send("DELETE", f"/{lost}").status_code == 503
    reconcile(cut_off.host)
    assert put_back(lost).status_code == 404, "half of it is gone"
    assert send("DELETE", f"/{lost}").status_code == 200
    assert state_of(lost)[0] == Status.LOST
