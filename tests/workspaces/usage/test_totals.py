"""Totals never decrease, and what a machine used is not lost without bound, whatever ends, dies or is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from common.redis import redis_client
from tests.callers import Caller
from tests.workspaces.usage.measured import CPU, MeasuredHost, cpu_total, metered_cpu, points
from tests.workspaces.usage.test_usage_api import totals
from workspaces.models import Workspace
from workspaces.states import Status
from workspaces.usage import services
from workspaces.usage.latest_samples import SampledMachine, delete_samples

pytestmark = pytest.mark.django_db

Happening = Callable[[MeasuredHost, Workspace], None]


def leave(row: Workspace, status: Status) -> None:
    Workspace.objects.filter(pk=row.pk).update(status=status, ready=False)


def come_back(row: Workspace) -> None:
    Workspace.objects.filter(pk=row.pk).update(status=Status.RUNNING, ready=True)


def sleep_and_wake(host: MeasuredHost, row: Workspace) -> None:
    leave(row, Status.SLEEPING)
    host.driver.sleep(row.pk)
    come_back(row)
    host.driver.start(row.pk)


def stop(host: MeasuredHost, row: Workspace) -> None:
    leave(row, Status.STOPPED)
    host.driver.destroy(row.pk)


def lose_redis(host: MeasuredHost, row: Workspace) -> None:
    delete_samples(SampledMachine(row.host_id, row.pk))


def kill_vmhost(host: MeasuredHost, row: Workspace) -> None:
    host.begin()
    delete_samples(SampledMachine(row.host_id, row.pk))  # as their expiry does


def kill_vmhost_and_machine(host: MeasuredHost, row: Workspace) -> None:
    kill_vmhost(host, row)
    host.restart_machine(row)


def write(host: MeasuredHost, row: Workspace) -> None:
    """A tick that readers hear of before the sampler does."""
    host.sampler.flush()


HAPPENINGS = [sleep_and_wake, stop, lose_redis, kill_vmhost, kill_vmhost_and_machine, write]


@pytest.mark.parametrize("happening", HAPPENINGS)
def test_totals_never_decrease(host: MeasuredHost, api: Caller, happening: Happening) -> None:
    row = host.machine()
    host.seconds(75, row, cpu_time_ns=CPU, disk_read_bytes=1, disk_write_bytes=2, net_rx_bytes=3, net_tx_bytes=4)
    before = totals(api, row)
    assert before["total_cpu_time_ns"] == 75 * CPU
    happening(host, row)
    for _ in range(3):
        for after in (totals(api, row), api.get("/workspace/usage").json()["usage"][row.pk]):
            assert all(after[name] >= before[name] for name in before)
            before = after
        host.seconds(1)


def test_totals_never_decrease_in_a_history_of_kills(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    before = 0
    for happening in [*HAPPENINGS, kill_vmhost_and_machine, lose_redis, kill_vmhost, sleep_and_wake] * 2:
        if happening is not stop:
            host.seconds(7, row, cpu_time_ns=CPU)
            assert totals(api, row)["total_cpu_time_ns"] >= before + (0 if before else 7 * CPU)
            before = totals(api, row)["total_cpu_time_ns"]
            happening(host, row)
            assert totals(api, row)["total_cpu_time_ns"] >= before
    assert before <= 2 * 9 * 7 * CPU


def test_usage_that_is_deleted_begins_at_zero(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.seconds(5, row, cpu_time_ns=CPU)
    assert totals(api, row)["total_cpu_time_ns"] == 5 * CPU
    api.delete(f"/workspace/{row.pk}/usage")
    assert totals(api, row)["total_cpu_time_ns"] == 0
    host.seconds(2, row, cpu_time_ns=CPU)
    assert totals(api, row)["total_cpu_time_ns"] == 2 * CPU


def test_of_a_database_that_cannot_be_written_only_what_is_stored_is_returned(
    host: MeasuredHost, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = host.machine()
    host.seconds(5, row, cpu_time_ns=CPU)
    shown = totals(api, row)
    host.seconds(5, row, cpu_time_ns=CPU)

    def refuse(newer: object) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(services, "_store_shown", refuse)
    assert totals(api, row) == shown
    monkeypatch.undo()
    assert totals(api, row)["total_cpu_time_ns"] == 10 * CPU


def test_a_machine_that_is_no_longer_metered_is_written_at_once(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(90, row, cpu_time_ns=CPU)
    stop(host, row)
    host.seconds(1)
    assert cpu_total(row) == metered_cpu(row) == 90 * CPU
    assert sum(point.cpu_time_ns for point in points(row)) == 89 * CPU
    assert redis_client().exists(f"{SampledMachine(row.host_id, row.pk).key}:now")


def test_a_vmhost_that_dies_often_meters_all_the_same(host: MeasuredHost) -> None:
    row = host.machine()
    for _ in range(20):
        host.begin()
        host.seconds(2, row, cpu_time_ns=CPU)
    host.restart_machine(row)  # killed together with the last vmhost
    host.begin()
    host.seconds(1)
    assert cpu_total(row) == metered_cpu(row) == 39 * CPU


def test_each_kill_that_also_ends_the_machine_loses_at_most_a_tick(host: MeasuredHost) -> None:
    row = host.machine()
    used, kills = 0, 0
    for lived in (3, 61, 100, 59, 7, 119):
        host.begin()
        host.seconds(lived, row, cpu_time_ns=CPU)
        host.restart_machine(row)
        used, kills = used + lived * CPU, kills + 1
        host.begin()
        host.seconds(1)
        assert used - cpu_total(row) <= kills * 60 * CPU
    assert metered_cpu(row) == cpu_total(row)


def test_reading_totals_that_have_not_grown_writes_nothing(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.seconds(5, row, cpu_time_ns=CPU)
    totals(api, row)
    with CaptureQueriesContext(connection) as queries:
        totals(api, row)
    words = {query["sql"].split()[0] for query in queries}
    assert words == {"SELECT"}, words
