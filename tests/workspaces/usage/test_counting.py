"""What is counted: every difference of the counters once, whatever restarts, dies or stands still in between."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.workspaces.usage.measured import CPU, MeasuredHost, begin_operation, cpu_total, metered_cpu, points
from vmbackend.samples import Sample
from workspaces.models import Operation, Usage
from workspaces.models.operation import OperationKind, OperationState
from workspaces.states import Status
from workspaces.usage.amounts import amounts_between

pytestmark = pytest.mark.django_db


def test_totals_are_what_the_machine_used(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(90, row, cpu_time_ns=CPU, disk_read_bytes=10, disk_write_bytes=20, net_rx_bytes=30, net_tx_bytes=40)
    host.flush()
    usage = Usage.objects.get(workspace=row)
    assert usage.total_cpu_time_ns == 90 * CPU
    assert (usage.total_disk_read, usage.total_disk_write) == (900, 1800)
    assert (usage.total_net_rx, usage.total_net_tx) == (2700, 3600)


def test_what_was_used_before_the_first_look_counts_too(host: MeasuredHost) -> None:
    row = host.machine()
    host.use(row, cpu_time_ns=7 * CPU)
    host.seconds(2)
    host.flush()
    assert cpu_total(row) == 7 * CPU


def test_reset_counters_are_never_negative_and_nothing_counts_twice(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(10, row, cpu_time_ns=CPU)
    host.restart_machine(row)
    host.seconds(10, row, cpu_time_ns=CPU)
    host.flush()
    assert cpu_total(row) == 20 * CPU
    assert all(point.cpu_time_ns >= 0 for point in points(row))


def test_counters_of_a_new_process_count_even_where_they_are_beyond_the_old_ones(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(5, row, cpu_time_ns=CPU)
    host.restart_machine(row)
    host.use(row, cpu_time_ns=100 * CPU)
    host.seconds(1)
    host.flush()
    assert cpu_total(row) == 105 * CPU


def test_where_the_backend_cannot_name_the_process_a_lower_counter_means_another_process() -> None:
    before = Sample(0, "", cpu_time_ns=100, net_rx_bytes=50)
    used = amounts_between(before, Sample(1, "", cpu_time_ns=120, net_rx_bytes=10))
    assert (used.cpu_time_ns, used.net_rx_bytes) == (120, 10)
    used = amounts_between(before, Sample(1, "", cpu_time_ns=120, net_rx_bytes=50))
    assert (used.cpu_time_ns, used.net_rx_bytes) == (20, 0)


@pytest.mark.parametrize(("before", "after"), [("run", ""), ("", "run")])
def test_a_process_that_could_not_be_named_once_does_not_count_twice(before: str, after: str) -> None:
    used = amounts_between(Sample(0, before, cpu_time_ns=100), Sample(1, after, cpu_time_ns=120))
    assert used.cpu_time_ns == 20
    assert amounts_between(Sample(0, before, cpu_time_ns=100), Sample(1, after, cpu_time_ns=30)).cpu_time_ns == 30


def test_a_device_that_goes_takes_nothing_back_in_the_same_process() -> None:
    before = Sample(0, "run", cpu_time_ns=100, disk_read_bytes=50)
    used = amounts_between(before, Sample(1, "run", cpu_time_ns=120, disk_read_bytes=10))
    assert (used.cpu_time_ns, used.disk_read_bytes) == (20, 0)


def test_an_unmeasured_time_counts_and_makes_no_point(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(60, row, cpu_time_ns=CPU)
    host.pass_by(180)
    host.use(row, cpu_time_ns=500 * CPU)
    host.seconds(60, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert cpu_total(row) == 620 * CPU
    assert metered_cpu(row) == 620 * CPU
    starts = [point.start for point in points(row)]
    assert [after - before for before, after in pairwise(starts)] == [240]
    assert max(point.cpu_time_ns for point in points(row)) <= 60 * CPU


@pytest.mark.parametrize("step", [-7200.0, -30.0, -0.5, 0.5, 30.0, 7200.0, 400 * 86400.0])
def test_a_clock_that_is_set_changes_no_total_and_no_rate(host: MeasuredHost, step: float) -> None:
    row = host.machine()
    host.seconds(65, row, cpu_time_ns=CPU)
    host.wall += step
    host.seconds(65, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert cpu_total(row) == metered_cpu(row) == 130 * CPU
    found = points(row)
    assert sum(point.cpu_time_ns for point in found) == 129 * CPU
    assert sum(point.observed_ms for point in found) == 129_000
    for point in found:
        assert point.start % 60 == 0
        assert point.cpu_capacity_ns == 2 * point.cpu_time_ns  # of two CPUs it used one


def test_machines_that_can_have_no_process_are_not_asked_for(
    host: MeasuredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str]] = []
    real = host.driver.samples
    monkeypatch.setattr(host.driver, "samples", lambda ids: asked.append(set(ids)) or real(ids))
    row, paused, starting = host.machine(), host.machine(status=Status.PAUSED), host.machine(status=Status.STARTING)
    for status in (Status.STOPPED, Status.SLEEPING, Status.QUEUED, Status.FAILED, Status.DESTROYED, Status.LOST):
        host.machine(status=status)
    host.seconds(1)
    assert asked == [{row.pk, paused.pk, starting.pk}]


def test_a_machine_that_is_being_saved_or_removed_is_not_asked_for(
    host: MeasuredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str]] = []
    real = host.driver.samples
    monkeypatch.setattr(host.driver, "samples", lambda ids: asked.append(set(ids)) or real(ids))
    row, busy = host.machine(), host.machine()
    for kind in (OperationKind.SLEEP, OperationKind.DESTROY, OperationKind.DELETE):
        operation = begin_operation(busy, kind)
        host.seconds(1)
        assert asked.pop() == {row.pk, busy.pk}  # it waits for its turn
        Operation.objects.filter(pk=operation.pk).update(state=OperationState.RUNNING)
        host.seconds(1)
        assert asked.pop() == {row.pk}
        Operation.objects.filter(pk=operation.pk).update(state=OperationState.SUCCEEDED)


def test_machines_that_come_and_go_are_counted_and_then_forgotten(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(30, row, cpu_time_ns=CPU)
    type(row).objects.filter(pk=row.pk).update(status=Status.STOPPED, ready=False)
    host.driver.destroy(row.pk)
    host.seconds(200)
    assert cpu_total(row) == 30 * CPU
    assert host.sampler._meters == {}
    type(row).objects.filter(pk=row.pk).update(status=Status.RUNNING, ready=True)
    host.restart_machine(row)
    host.seconds(30, row, cpu_time_ns=CPU)
    host.flush()
    assert cpu_total(row) == 60 * CPU
