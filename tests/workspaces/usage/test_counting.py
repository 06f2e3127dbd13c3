"""What is counted: every difference of the counters once, whatever restarts, dies or stands still in between."""

from __future__ import annotations

from itertools import pairwise

import pytest
from django.db import OperationalError, connection

from tests.workspaces.usage.measured import CPU, Killed, MeasuredHost, cpu_total, metered_cpu, points
from vmbackend.errors import BackendUnavailable
from vmbackend.samples import Sample
from workspaces.models import MeterRecord, Operation, Usage
from workspaces.models.operation import OperationKind, OperationState
from workspaces.states import Status
from workspaces.usage import sampler as sampling
from workspaces.usage import writer as writing
from workspaces.usage.amounts import since

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


def test_counters_that_begin_anew_are_never_negative_and_nothing_counts_twice(host: MeasuredHost) -> None:
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


def test_where_the_backend_cannot_name_the_process_one_lower_counter_tells_of_another() -> None:
    before = Sample(0, "", cpu_time_ns=100, net_rx_bytes=50)
    used = since(before, Sample(1, "", cpu_time_ns=120, net_rx_bytes=10))
    assert (used.cpu_time_ns, used.net_rx_bytes) == (120, 10)
    used = since(before, Sample(1, "", cpu_time_ns=120, net_rx_bytes=50))
    assert (used.cpu_time_ns, used.net_rx_bytes) == (20, 0)


def test_a_device_that_goes_takes_nothing_back_in_the_same_process() -> None:
    before = Sample(0, "run", cpu_time_ns=100, disk_read_bytes=50)
    used = since(before, Sample(1, "run", cpu_time_ns=120, disk_read_bytes=10))
    assert (used.cpu_time_ns, used.disk_read_bytes) == (20, 0)


def test_a_time_that_nobody_measured_counts_and_makes_no_point(host: MeasuredHost) -> None:
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


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", range(12))
def test_a_process_that_dies_while_it_writes_has_counted_all_of_it_or_nothing(
    host: MeasuredHost, statement: int
) -> None:
    row, other = host.machine(), host.machine()
    host.seconds(70, row, cpu_time_ns=CPU)
    host.use(row, cpu_time_ns=5 * CPU)
    host.use(other, cpu_time_ns=3 * CPU)
    host.seconds(1)
    seen = 0

    def dying(execute, sql, params, many, context):
        nonlocal seen
        seen += 1
        if seen > statement:
            raise Killed
        return execute(sql, params, many, context)

    try:
        with connection.execute_wrapper(dying):
            host.flush()
    except Killed:
        pass
    host.begin()
    host.seconds(10, row, cpu_time_ns=CPU)
    host.flush()
    assert (cpu_total(row), cpu_total(other)) == (85 * CPU, 3 * CPU)
    assert (metered_cpu(row), metered_cpu(other)) == (85 * CPU, 3 * CPU)


def test_a_commit_that_is_not_heard_of_counts_once(host: MeasuredHost, monkeypatch: pytest.MonkeyPatch) -> None:
    row = host.machine()
    host.seconds(130, row, cpu_time_ns=CPU)  # with its own ticks
    before = (cpu_total(row), metered_cpu(row), sum(point.cpu_time_ns for point in points(row)))
    ticks: list[tuple] = []
    monkeypatch.setattr(host.writer, "put", lambda tick, parts: ticks.append((tick, parts)))
    host.seconds(5, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    for tick, parts in ticks * 3:
        writing.write(parts, tick)
    grown = 5 * CPU
    assert cpu_total(row) == before[0] + grown + 9 * CPU  # 121 to 130 were not written before
    assert metered_cpu(row) == before[1] + grown + 9 * CPU
    assert sum(point.cpu_time_ns for point in points(row)) == cpu_total(row) - CPU  # no point of the first look


def test_a_process_that_died_loses_at_most_what_an_ended_machine_used_since_the_last_tick(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(60, row, cpu_time_ns=CPU)
    host.seconds(30, row, cpu_time_ns=CPU)
    host.restart_machine(row)  # while no vmhost was there to see
    host.begin()
    host.seconds(10, row, cpu_time_ns=CPU)
    host.flush()
    lost = 100 * CPU - cpu_total(row)
    assert 0 < lost < 60 * CPU
    assert metered_cpu(row) == cpu_total(row)


def test_a_process_that_dies_while_machines_go_on_loses_nothing(host: MeasuredHost) -> None:
    row = host.machine()
    for _ in range(5):
        host.seconds(17, row, cpu_time_ns=CPU)
        host.begin()
    host.seconds(1)
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == 85 * CPU


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


def test_machines_with_an_operation_in_flight_or_at_rest_are_not_asked_for(
    host: MeasuredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str]] = []
    real = host.driver.samples
    monkeypatch.setattr(host.driver, "samples", lambda ids: asked.append(set(ids)) or real(ids))
    row, busy, paused = host.machine(), host.machine(), host.machine(status=Status.PAUSED)
    for status in (Status.STOPPED, Status.SLEEPING, Status.STARTING, Status.SUSPENDING):
        host.machine(status=status)
    host.machine(ready=False)
    Operation.objects.create(
        workspace=busy, kind=OperationKind.SLEEP, queue=host.host.queue, deadline_at=busy.created_at
    )
    host.seconds(1)
    assert asked == [{row.pk, paused.pk}]
    Operation.objects.update(state=OperationState.SUCCEEDED)
    host.seconds(1)
    assert asked[-1] == {row.pk, busy.pk, paused.pk}


def test_a_hypervisor_that_is_away_leaves_a_gap(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(10, row, cpu_time_ns=CPU)
    host.driver.fail_next("samples", BackendUnavailable("away"), times=20)
    host.seconds(20, row, cpu_time_ns=CPU)
    host.seconds(10, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert cpu_total(row) == 40 * CPU
    assert sum(point.observed_ms for point in points(row)) == (9 + 9) * 1000


def test_a_database_that_is_away_delays_the_totals_and_loses_nothing(
    host: MeasuredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = host.machine()
    host.seconds(10, row, cpu_time_ns=CPU)
    away = True
    real = sampling.roster

    def roster(name: str):
        if away:
            raise OperationalError("away")
        return real(name)

    monkeypatch.setattr(sampling, "roster", roster)
    host.writer.away = True
    host.seconds(200, row, cpu_time_ns=CPU)
    assert not Usage.objects.filter(workspace=row).exists()
    away = host.writer.away = False
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == 210 * CPU
    assert MeterRecord.objects.filter(workspace_id=row.pk).count() == 4


def test_without_redis_the_rows_are_complete(host: MeasuredHost, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis

    def away(pushed):
        raise redis.ConnectionError("away")

    row = host.machine()
    monkeypatch.setattr(host.sampler._publisher, "push", away)
    host.seconds(70, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert cpu_total(row) == 70 * CPU
    assert sum(point.cpu_time_ns for point in points(row)) == 69 * CPU


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
