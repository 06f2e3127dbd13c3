"""What is counted where something dies, is away or comes late: every difference once, all the same."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from tests.workspaces.usage.measured import CPU, MeasuredHost, cpu_total, dying_after, metered_cpu, points
from vmbackend.errors import BackendUnavailable
from workspaces.host.metering import meter as metering
from workspaces.host.metering import sampler as sampling
from workspaces.host.metering import writer as writing
from workspaces.models import MeterRecord

pytestmark = pytest.mark.django_db
STATEMENTS = 4  # of a write of two machines' counts


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", range(STATEMENTS + 1))
def test_a_process_that_dies_while_it_writes_has_counted_all_of_it_or_nothing(
    host: MeasuredHost, statement: int
) -> None:
    row, other = host.machine(), host.machine()
    host.seconds(70, row, cpu_time_ns=CPU)
    host.use(row, cpu_time_ns=5 * CPU)
    host.use(other, cpu_time_ns=3 * CPU)
    host.seconds(1)
    with dying_after(statement) as died_at:
        host.flush()
    assert bool(died_at) == (statement < STATEMENTS)
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
    monkeypatch.setattr(host.writer, "submit", lambda tick, parts: ticks.append((tick, parts)))
    host.seconds(5, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    for tick, parts in ticks * 3:
        writing.write_deltas(parts, tick)
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
    real = sampling.meter_targets

    def roster(name: str):
        if away:
            raise OperationalError("away")
        return real(name)

    monkeypatch.setattr(sampling, "meter_targets", roster)
    host.writer.away = True
    host.seconds(200, row, cpu_time_ns=CPU)
    assert cpu_total(row) == CPU  # written at once
    away = host.writer.away = False
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == 210 * CPU
    assert MeterRecord.objects.filter(metered__workspace_id=row.pk).count() == 1 + 4


def test_a_tick_that_was_given_up_is_counted_by_the_next(host: MeasuredHost, monkeypatch: pytest.MonkeyPatch) -> None:
    row = host.machine()
    host.seconds(65, row, cpu_time_ns=CPU)
    monkeypatch.setattr(host.writer, "submit", lambda tick, parts: host.writer.finished.append((tick, parts)))
    host.seconds(60, row, cpu_time_ns=CPU)
    monkeypatch.undo()
    host.seconds(60, row, cpu_time_ns=CPU)
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == 185 * CPU


def test_two_samplers_at_once_count_everything_once(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(5, row, cpu_time_ns=CPU)
    first, first_writer = host.sampler, host.writer
    host.begin()
    for turn in range(6):
        host.seconds(10, row, cpu_time_ns=CPU)  # seen by the one
        first.run_once()  # and by the other
        (first if turn % 2 else host.sampler).flush()
    first.flush()
    host.flush()
    assert first_writer.finished
    assert cpu_total(row) == metered_cpu(row) == 65 * CPU


def test_a_commit_of_a_process_that_ended_is_not_counted_again_by_the_next(
    host: MeasuredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = host.machine()
    host.seconds(65, row, cpu_time_ns=CPU)
    late: list[tuple] = []
    monkeypatch.setattr(host.writer, "submit", lambda tick, parts: late.append((tick, parts)))
    host.seconds(20, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    host.begin()
    host.seconds(10, row, cpu_time_ns=CPU)  # it has read the row by now
    for tick, parts in late:
        writing.write_deltas(parts, tick)
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == 95 * CPU


def test_while_the_writer_is_behind_measures_are_merged(host: MeasuredHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "MAX_MINUTES", 3)
    row = host.machine()
    host.writer.is_behind = True
    host.seconds(400, row, cpu_time_ns=CPU)
    assert not MeterRecord.objects.exists()
    host.writer.is_behind = False
    host.flush()
    (record,) = MeterRecord.objects.all()
    assert (record.cpu_time_ns, record.period_ms) == (400 * CPU, 399_000)
    assert cpu_total(row) == 400 * CPU
    assert len(points(row)) <= 3


def test_without_redis_the_rows_are_complete(host: MeasuredHost, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis

    def away(pushed):
        raise redis.ConnectionError("away")

    row = host.machine()
    monkeypatch.setattr(host.sampler._publisher, "publish", away)
    host.seconds(70, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert cpu_total(row) == 70 * CPU
    assert sum(point.cpu_time_ns for point in points(row)) == 69 * CPU
