"""A commit of a former vmhost that comes after the next one's: nothing counts twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workspaces.usage.measured import CPU, MeasuredHost, cpu_total, metered_cpu, points
from workspaces.host.metering.writer import write_deltas

pytestmark = pytest.mark.django_db


def held_back(host: MeasuredHost, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """What this vmhost sends from now on, and the database has not carried out."""
    late: list[tuple[int, Any]] = []
    monkeypatch.setattr(host.writer, "submit", lambda tick, parts: late.append((tick, parts)))
    return late


@pytest.mark.parametrize("restarted", [False, True])
def test_a_commit_that_comes_after_the_next_vmhosts_counts_nothing_again(
    host: MeasuredHost, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    row = host.machine()
    host.seconds(65, row, cpu_time_ns=CPU)
    late = held_back(host, monkeypatch)
    host.seconds(20, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    host.pass_by(0.25)
    host.begin()
    if restarted:
        host.restart_machine(row)
    host.seconds(10, row, cpu_time_ns=CPU)
    host.flush()
    counted = cpu_total(row)
    for tick, parts in late:
        write_deltas(parts, tick)
    assert cpu_total(row) == metered_cpu(row) == counted
    host.seconds(10, row, cpu_time_ns=CPU)
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == counted + 10 * CPU
    if not restarted:
        assert counted == 95 * CPU


def test_what_comes_late_is_in_the_series_all_the_same(host: MeasuredHost, monkeypatch: pytest.MonkeyPatch) -> None:
    row = host.machine()
    host.seconds(5, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    late = held_back(host, monkeypatch)
    host.seconds(20, row, cpu_time_ns=CPU)
    host.sampler.flush(everything=True)
    host.pass_by(0.25)
    host.begin()
    host.seconds(1, row, cpu_time_ns=CPU)
    host.flush()
    before = sum(point.cpu_time_ns for point in points(row))
    for tick, parts in late:
        write_deltas(parts, tick)
    assert sum(point.cpu_time_ns for point in points(row)) == before + 20 * CPU
