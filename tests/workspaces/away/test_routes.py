"""Routes of a workspace whose host cannot be reached: refused at once, or stored for its return."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.callers import Caller
from tests.workspaces.away.conftest import CutOff
from vmbackend.driver import MachineState
from vmbackend.models import Host
from workspaces.host.reconcile.operations import expire_operations
from workspaces.models import Activity, Operation, Workspace

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED: list[tuple[str, str, Any]] = [
    ("POST", "start", None),
    ("POST", "start", {"force": True}),
    ("POST", "resume", None),
    ("POST", "restart", None),
    ("POST", "pause", None),
    ("POST", "reinstall", None),
    ("POST", "snapshot", {}),
    ("POST", "restore", {}),
    ("POST", "fork", {}),
    ("PUT", "resources", {"memory_mb": 512, "apply": True}),
    ("PUT", "overlay/resize", {"size_mb": 4096}),
    ("POST", "exec", {"cmd": "true"}),
    ("GET", "overlay/files?path=/etc/hostname", None),
    ("GET", "overlay?path=/", None),
]
STORED: list[tuple[str, str, Any]] = [
    ("PUT", "network", {"allow_internet": False}),
    ("POST", "ssh/enable", None),
    ("PUT", "lifecycle/idle", {"suspend_after": 600}),
    ("POST", "lifecycle/permanent", {}),
    ("POST", "lifecycle/temporary", {"ttl": 600}),
    ("PUT", "", {"config": {"env": ["A=1"]}}),
]


def asked(api: Caller, method: str, path: str, body: Any) -> Any:
    """The answer, which must not take the time of a call to a host or a guest."""
    began = time.monotonic()
    answer = api.send(method, path, body)
    assert time.monotonic() - began < 8, path
    return answer


def test_what_needs_the_machine_is_refused_at_once(api: Caller, cut_off: CutOff, made: str) -> None:
    cut_off.leave()
    for method, path, body in REFUSED:
        answer = asked(api, method, f"/workspace/{made}/{path}", body)
        assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE"), (path, answer.content)
        assert answer.json()["details"].keys() == {"host_state", "host_since"}, path
        assert answer.json()["details"]["host_state"] == "unreachable"
        assert answer.headers["Retry-After"] == "30"
    assert Workspace.objects.get().status == "running"
    assert not Operation.objects.filter(state="queued").exists()


@pytest.mark.parametrize("path", ["", "/start", "/exec", "/stop", "/network", "/stats"])
def test_another_account_is_told_nothing(stranger: Caller, cut_off: CutOff, made: str, path: str) -> None:
    cut_off.leave()
    method = "POST" if path in ("/start", "/exec", "/stop") else "GET"
    body = {"cmd": "true"} if path == "/exec" else None
    assert stranger.send(method, f"/workspace/{made}{path}", body).status_code == 404


def test_changes_are_stored_and_reach_the_machine_later(api: Caller, cut_off: CutOff, made: str) -> None:
    cut_off.leave()
    for method, path, body in STORED:
        answer = asked(api, method, f"/workspace/{made}/{path}".rstrip("/"), body)
        assert (answer.status_code, answer.json().get("accepted")) == (202, True), (path, answer.content)
    row = Workspace.objects.get()
    assert (row.allow_internet, row.network_stale, row.ssh_enabled, row.ssh_stale) == (False, True, True, True)
    assert (row.env, row.mode) == ({"A": "1"}, "temporary")
    cut_off.come_back()
    answer = api.put(f"/workspace/{made}/network", {"allow_internet": True})
    assert (answer.status_code, answer.json()["applied"], "accepted" in answer.json()) == (200, True, False)


def test_lists_and_details_say_where_it_is(api: Caller, cut_off: CutOff, made: str) -> None:
    def shown() -> dict[str, Any]:
        [listed] = api.get("/workspace").json()["workspaces"]
        single = api.get(f"/workspace/{made}").json()["workspace"]
        whole = api.get(f"/workspace/{made}/details").json()["workspace"]
        names = ("host", "host_state", "host_since", "ready", "status")
        found = [{name: each[name] for name in names} for each in (listed, single, whole)]
        assert found[0] == found[1] == found[2]
        return found[0]

    before = shown()
    assert (before["host"], before["host_state"], before["ready"]) == (Host.objects.get().name, "active", True)
    cut_off.leave()
    away = shown()
    assert (away["host_state"], away["ready"], away["status"]) == ("unreachable", False, "running")
    cut_off.come_back()
    back = shown()
    assert (back["host_state"], back["ready"]) == ("active", True)
    assert back["host_since"] >= away["host_since"]
    Host.objects.update(state="draining")
    assert shown()["host_state"] == "draining"


def test_a_list_takes_as_many_queries_with_hosts_as_before(
    api: Caller, cut_off: CutOff, made: str, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(8):
        api.get("/workspace")


def test_a_stop_is_carried_out_once_when_the_host_is_back(api: Caller, cut_off: CutOff, made: str) -> None:
    cut_off.leave()
    answer = asked(api, "POST", f"/workspace/{made}/stop", None)
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    assert api.post(f"/workspace/{made}/stop").status_code == 409
    hours = timezone.now() - timedelta(hours=5)
    Operation.objects.filter(kind="stop").update(created_at=hours, deadline_at=hours, notified_at=hours)
    assert expire_operations() == 0, "it waits for its host"
    cut_off.come_back()
    assert expire_operations() == 0, "its time counts from the return"
    stop = Operation.objects.get(kind="stop")
    assert (stop.state, stop.attempt) == ("succeeded", 1)
    assert Workspace.objects.get().status == "stopped"
    assert Activity.objects.filter(workspace_id=made, action="stopped").count() == 1
    assert cut_off.host.driver.state(made) is MachineState.OFF


def test_what_waited_ends_if_a_host_that_is_back_does_not_carry_it_out(api: Caller, cut_off: CutOff, made: str) -> None:
    cut_off.leave()
    api.post(f"/workspace/{made}/stop")
    hours = timezone.now() - timedelta(hours=5)
    Operation.objects.filter(kind="stop").update(created_at=hours, deadline_at=hours)
    soon = timezone.now() + timedelta(seconds=30)
    Host.objects.update(lease_until=soon, lease_since=timezone.now() - timedelta(hours=1))
    assert expire_operations() == 1
    assert Workspace.objects.get().status == "running"


def test_a_sleep_is_accepted(api: Caller, cut_off: CutOff, made: str) -> None:
    cut_off.leave()
    answer = asked(api, "POST", f"/workspace/{made}/sleep", None)
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    Operation.objects.filter(kind="sleep").update(notified_at=timezone.now() - timedelta(minutes=1))
    cut_off.come_back()
    assert Workspace.objects.get().status == "sleeping"


def test_a_delete_is_accepted_and_takes_the_place_of_a_stop(api: Caller, cut_off: CutOff, made: str) -> None:
    cut_off.leave()
    api.post(f"/workspace/{made}/stop")
    answer = asked(api, "DELETE", f"/workspace/{made}", None)
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    assert api.get(f"/workspace/{made}").json()["workspace"]["status"] == "deleting"
    assert api.post(f"/workspace/{made}/start").status_code == 503
    assert asked(api, "DELETE", f"/workspace/{made}", None).status_code == 202
    Operation.objects.update(notified_at=timezone.now() - timedelta(minutes=1))
    cut_off.come_back()
    assert api.get(f"/workspace/{made}").status_code == 404
    assert cut_off.host.driver.state(made) is MachineState.ABSENT
    assert Activity.objects.filter(workspace_id=made, action="deleted").count() == 1


def test_a_hypervisor_that_does_not_answer_refuses_a_stop_as_before(api: Caller, cut_off: CutOff, made: str) -> None:
    Host.objects.update(problem="libvirt is away")
    answer = api.post(f"/workspace/{made}/stop")
    assert (answer.status_code, answer.json()["message"]) == (503, "libvirt is away")
    assert api.get(f"/workspace/{made}").json()["workspace"]["host_state"] == "active"


def test_a_workspace_of_a_host_that_was_given_up_is_deleted_at_once(api: Caller, cut_off: CutOff, made: str) -> None:
    cut_off.leave()
    assert api.delete(f"/workspace/{made}").status_code == 202
    Host.objects.update(state="gone")
    assert api.delete(f"/workspace/{made}").status_code == 200
    assert api.get(f"/workspace/{made}").status_code == 404
