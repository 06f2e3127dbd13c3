"""Hosts that fall silent, come back, and are given up: what the worker's sweep writes."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from common.errors import ValidationError
from config import health
from tests.callers import Caller
from tests.fakehost import Died
from tests.threads import run_at_once
from tests.webhooks.sending import make_subscription
from tests.workspaces.away.conftest import CutOff
from tests.workspaces.rows import end_leases, make_host, make_workspace, renew_leases
from vmbackend.driver import MachineState
from vmbackend.host_states import HostState
from vmbackend.models import Host
from webhooks.models import Event
from workspaces import errors
from workspaces.host import host_loss, host_sweep
from workspaces.host.host_sweep import sweep_hosts
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host_changes import host_give_up, host_state_change
from workspaces.models import Activity, Operation, WarmMachine, Workspace
from workspaces.operations import queue
from workspaces.quota import account_usage

pytestmark = pytest.mark.django_db(transaction=True)


def actions(key: str) -> list[str]:
    wanted = ("host_unreachable", "host_back", "host_lost")
    return list(
        Activity.objects.filter(workspace_id=key, action__in=wanted).order_by("id").values_list("action", flat=True)
    )


def give_up(host: Host) -> None:
    host_give_up(host_id=host.pk, confirm=host.name)


def test_owners_are_told_once_of_each_change(api: Caller) -> None:
    host = make_host("one")
    row = make_workspace(api.account, host=host, ip="10.200.0.2")
    make_workspace(api.account, host=make_host("other"))
    assert sweep_hosts() == 0
    for _ in range(2):
        end_leases(name="one")
        assert run_at_once(3, lambda _: sweep_hosts()) == ["done"] * 3
        assert sweep_hosts() == 0
        renew_leases(name="one")
        assert run_at_once(3, lambda _: sweep_hosts()) == ["done"] * 3
    assert actions(row.pk) == ["host_unreachable", "host_back"] * 2
    assert Activity.objects.filter(action="host_unreachable").count() == 2


def test_telling_takes_as_many_statements_for_many_as_for_one(api: Caller) -> None:
    counts = []
    for number in (1, 40):
        host = make_host(f"host-{number}")
        for _ in range(number):
            make_workspace(api.account, host=host)
        end_leases(name=host.name)
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert sweep_hosts() == 1
        counts.append(len(seen))
        renew_leases()
        sweep_hosts()
    assert counts[0] == counts[1]


def test_a_sweep_that_dies_tells_all_the_next_time(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_workspace(api.account, host=make_host("one"))
    end_leases()

    def dies(*args: Any) -> None:
        raise Died

    monkeypatch.setattr(host_sweep, "record_members", dies)
    with pytest.raises(Died):
        sweep_hosts()
    assert (actions(row.pk), Host.objects.get().is_silent) == ([], False)
    monkeypatch.undo()
    assert sweep_hosts() == 1
    assert actions(row.pk) == ["host_unreachable"]


def test_a_third_of_the_hosts_silent_at_once_is_the_control_planes_fault(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(6):
        make_host(f"host-{number}")
    end_leases(ago=timedelta(hours=9), name="host-0")
    end_leases(name="host-1")
    with caplog.at_level(logging.ERROR):
        sweep_hosts()
        assert "control plane" not in caplog.text, "one is silent for hours"
        end_leases(name="host-2")
        sweep_hosts()
    assert "fault of the control plane" in caplog.text
    health.PROBLEMS.invalidate()
    found = client.get("/readyz").json()["checks"]["hosts"]
    assert found["ok"]
    assert found["message"].startswith("Unreachable: host-0, host-1, host-2. They fell silent at once")
    end_leases()
    health.PROBLEMS.invalidate()
    assert not client.get("/readyz").json()["checks"]["hosts"]["ok"]
    health.PROBLEMS.invalidate()


@pytest.mark.parametrize("retry", ["provisioning/retry", "start"])
def test_a_creation_does_not_wait_long_for_a_host(
    api: Caller, cut_off: CutOff, retry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off.host.hold_tasks()
    made = api.post("/workspace", {"wait_ready": False}).json()["workspace"]["id"]
    end_leases(ago=timedelta(seconds=30))
    sweep_hosts()
    assert Workspace.objects.get().status == "queued"
    end_leases(ago=timedelta(minutes=2))
    sweep_hosts()
    row = Workspace.objects.get(pk=made)
    assert (row.status, row.provisioning_error_code) == ("failed", "host_unreachable")
    other = make_host("other")
    monkeypatch.setattr(settings.ENV, "power_seconds", 0.1)
    assert api.post(f"/workspace/{made}/{retry}", {"force": True} if retry == "start" else None).status_code == 202
    row.refresh_from_db()
    assert (row.host, row.epoch) == (other, 2)
    assert cut_off.host.held_tasks is not None
    cut_off.host.held_tasks.clear()


def test_a_lease_that_was_lost_while_an_operation_ran_ends_nothing(
    api: Caller, cut_off: CutOff, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutdown = cut_off.host.driver.shutdown

    def during(machine_id: str, grace: float) -> bool:
        end_leases()
        sweep_hosts()
        renew_leases()
        sweep_hosts()
        return shutdown(machine_id, grace)

    monkeypatch.setattr(cut_off.host.driver, "shutdown", during)
    assert api.post(f"/workspace/{made}/stop").status_code == 200
    assert Operation.objects.get(kind="stop").attempt == 1
    assert actions(made) == ["host_unreachable", "host_back"]


def test_a_host_is_given_up_only_by_its_name_and_while_it_is_silent(cut_off: CutOff, made: str) -> None:
    host = Host.objects.get()
    with pytest.raises(errors.HostAlive):
        give_up(host)
    end_leases()
    with pytest.raises(ValidationError):
        host_give_up(host_id=host.pk, confirm="another")
    give_up(host)
    with pytest.raises(errors.InvalidHostState):
        give_up(host)


STATUSES = ["running", "stopped", "paused", "sleeping", "lost", "starting", "stopping", "waking", "restoring"]


def test_everything_on_it_is_lost_in_batches(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    make_subscription(api.account, "https://hooks.example/x", events=["vm.lost"])
    host = make_host("one")
    rows = [
        make_workspace(api.account, host=host, status=status, ip=f"10.200.0.{n + 2}")
        for n, status in enumerate(STATUSES)
    ]
    kept = [make_workspace(api.account, host=host, status=status) for status in ("failed", "destroyed")]
    deleting = make_workspace(api.account, host=host, status="deleting")
    waiting = queue.enqueue_operation(rows[6], "stop", actor="owner", params={"from": "running"})
    WarmMachine.objects.create(
        host=host, ip="10.200.1.1", image="localhost/tiny:1", image_digest="d", kit="k", cpu_millis=100, memory_mb=128,
        disk_size_mb=64, state="ready",
    )  # fmt: skip
    end_leases()
    give_up(host)
    monkeypatch.setattr(host_loss, "BATCH", 4)
    while sweep_hosts():
        pass
    assert not Workspace.objects.filter(pk=deleting.pk).exists()
    assert [Workspace.objects.get(pk=row.pk).status for row in kept] == ["failed", "destroyed"]
    for row in rows:
        row.refresh_from_db()
        assert (row.status, row.error_code, row.epoch, row.ready) == ("lost", "host_lost", 2, False)
        assert actions(row.pk) == ["host_lost"]
    waiting.refresh_from_db()
    assert (waiting.state, waiting.error_code) == ("failed", "host_lost")
    assert WarmMachine.objects.get().state == "retiring"
    assert account_usage(api.account).running.memory_mb == 0
    told = [json.loads(json.dumps(event.data)) for event in Event.objects.filter(type="vm.lost")]
    assert {each["workspace_id"] for each in told} == {row.pk for row in rows if row is not rows[4]}
    assert {(each["host"], each["reason"], each["since"] is not None) for each in told} == {("one", "host_lost", True)}
    shown = api.get(f"/workspace/{rows[0].pk}").json()["workspace"]
    assert (shown["status"], shown["host_state"], shown["info"]["error"]["code"]) == ("lost", "gone", "host_lost")
    answer = api.post(f"/workspace/{rows[0].pk}/start")
    assert (answer.status_code, answer.json()["code"], answer.json()["details"]) == (
        409,
        "invalid_state",
        {"status": "lost"},
    )
    assert api.delete(f"/workspace/{rows[0].pk}").status_code == 200


def test_whatever_dies_in_between_the_rest_is_lost_the_next_time(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_host("one")
    for _ in range(3):
        make_workspace(api.account, host=host)
    end_leases()
    give_up(host)
    for name in ("_write_lost", "record_activity", "transition"):
        calls = []
        real = getattr(host_loss, name)

        def dies(*args: Any, real: Any = real, calls: list[int] = calls, **fields: Any) -> None:
            calls.append(1)
            if len(calls) == 2:
                raise Died
            real(*args, **fields)

        with monkeypatch.context() as patched:
            patched.setattr(host_loss, name, dies)
            if Workspace.objects.exclude(status="lost").count() > 1:
                with pytest.raises(Died):
                    sweep_hosts()
    assert run_at_once(3, lambda _: sweep_hosts()) == ["done"] * 3
    assert set(Workspace.objects.values_list("status", "epoch")) == {("lost", 2)}
    assert Activity.objects.filter(action="host_lost").count() == 3


def test_of_a_host_that_comes_back_all_machines_are_set_aside(api: Caller, cut_off: CutOff, made: str) -> None:
    deleted = api.post("/workspace", {}).json()["workspace"]["id"]
    cut_off.leave()
    host = Host.objects.get()
    give_up(host)
    assert api.delete(f"/workspace/{deleted}").status_code == 200
    driver = cut_off.host.driver
    cut_off.come_back()
    reconcile_rows_and_machines(cut_off.host.runtime)
    assert driver.state(made) is MachineState.RUNNING, "the worker has not written its row yet"
    assert driver.state(deleted) is MachineState.ABSENT
    sweep_hosts()
    reconcile_rows_and_machines(cut_off.host.runtime)
    assert driver.state(made) is MachineState.ABSENT
    assert {orphan.machine_id for orphan in driver.kept_orphans()} == {made, deleted}
    assert Workspace.objects.get().status == "lost"
    assert api.post("/workspace", {}).status_code == 503, "it takes nothing"
    host_state_change(host_id=host.pk, to=HostState.ACTIVE)
    reconcile_rows_and_machines(cut_off.host.runtime)
    assert Workspace.objects.get().status == "lost"
    assert api.post(f"/workspace/{made}/start").status_code == 409
    assert api.post("/workspace", {}).status_code == 201


def test_of_a_delete_and_a_start_and_giving_up_at_once_nothing_is_half_done(api: Caller) -> None:
    for _ in range(3):
        host = make_host("one")
        Host.objects.update(state="active")
        key = make_workspace(api.account, host=host, status="stopped").pk
        end_leases()
        assert run_at_once(3, partial(_take_turn, api, host, key)) == ["done"] * 3
        sweep_hosts()
        assert not Workspace.objects.filter(pk=key).exists()
    assert not Operation.objects.filter(finished_at=None).exists()


def _take_turn(api: Caller, host: Host, key: str, number: int) -> None:
    if number == 0:
        give_up(host)
        sweep_hosts()
    elif number == 1:
        assert api.delete(f"/workspace/{key}").status_code in (200, 202)
    else:
        assert api.post(f"/workspace/{key}/start").status_code in (404, 409, 503)
