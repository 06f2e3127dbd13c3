"""A host's clock that is set: what is counted stays whole, and is counted at the time that the clock shows."""

from __future__ import annotations

import pytest

from tests.workspaces.usage.measured import CPU, MeasuredHost, cpu_total, metered_cpu
from workspaces.models import MeterRecord

pytestmark = pytest.mark.django_db

# No whole number of ticks, so that no tick falls on an earlier one.
STEP = 7201.375


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("step", [-STEP, STEP])
def test_a_clock_that_is_set_delays_no_count(host: MeasuredHost, step: float, dies: bool) -> None:
    row = host.machine()
    host.seconds(65, row, cpu_time_ns=CPU)
    host.wall += step
    if dies:
        host.begin()
    host.seconds(65, row, cpu_time_ns=CPU)
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == 130 * CPU


def test_after_a_clock_was_ahead_ticks_have_the_right_time_again(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(65, row, cpu_time_ns=CPU)
    host.wall += STEP
    host.seconds(65, row, cpu_time_ns=CPU)
    host.wall -= STEP
    before = MeterRecord.objects.order_by("-id")[0].pk
    host.seconds(130, row, cpu_time_ns=CPU)
    host.flush()
    ticks = MeterRecord.objects.filter(pk__gt=before).order_by("id").values_list("tick", flat=True)
    assert len(ticks) > 2
    assert max(ticks) <= host.wall * 1_000_000
    assert cpu_total(row) == metered_cpu(row) == 260 * CPU


def test_ticks_of_one_moment_are_apart(host: MeasuredHost) -> None:
    row = host.machine()
    for _ in range(3):
        host.use(row, cpu_time_ns=CPU)
        host.sampler.run_once()
        host.sampler.flush(everything=True)
    assert cpu_total(row) == metered_cpu(row) == 3 * CPU
    assert len(set(MeterRecord.objects.values_list("tick", flat=True))) == 3
