"""What a killed vmhost does not charge: memory of at most one tick for each kill, and of counters nothing at all."""

from __future__ import annotations

import pytest
from django.conf import settings

from tests.workspaces.usage.measured import CPU, MeasuredHost, metered_cpu
from workspaces.models import MeterRecord, Workspace

pytestmark = pytest.mark.django_db

MEMORY_MB = 1024


def metered_memory(row: Workspace) -> int:
    return sum(record.memory_mb_ms for record in MeterRecord.objects.filter(metered__workspace_id=row.pk))


@pytest.mark.parametrize("seconds", [3, 30, 59, 61, 118, 150])
@pytest.mark.parametrize("kills", [1, 4])
def test_each_kill_loses_at_most_a_tick_of_memory(host: MeasuredHost, seconds: int, kills: int) -> None:
    row = host.machine()
    for _ in range(kills):
        host.seconds(seconds, row, cpu_time_ns=CPU)
        host.begin()
    host.seconds(5, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    lived = kills * seconds + 5
    assert metered_cpu(row) == lived * CPU
    tick = settings.ENV.metering_seconds + 1  # the second of its end is looked at by the next one
    lost = (lived - 1) * 1000 - metered_memory(row) // MEMORY_MB
    assert 0 < lost <= kills * tick * 1000


def test_a_vmhost_that_stops_loses_no_memory(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(30, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)  # as `stop` does
    host.begin()
    host.seconds(30, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    assert metered_memory(row) == MEMORY_MB * (29 + 29) * 1000
    assert metered_cpu(row) == 60 * CPU


@pytest.mark.parametrize("kills", [1, 3])
def test_each_kill_that_also_ended_the_machine_loses_at_most_a_tick(host: MeasuredHost, kills: int) -> None:
    row = host.machine()
    for _ in range(kills):
        host.seconds(100, row, cpu_time_ns=CPU)
        host.restart_machine(row)
        host.begin()
    host.seconds(5, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    lost = (100 * kills + 5) * CPU - metered_cpu(row)
    assert 0 < lost <= kills * settings.ENV.metering_seconds * CPU
