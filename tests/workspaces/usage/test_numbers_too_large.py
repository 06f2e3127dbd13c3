"""A machine whose counters no column holds: the writer of usage goes on, and every other machine is counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.test_threads import until
from vmbackend.samples import Sample
from workspaces.host.metering import writer as writing
from workspaces.host.metering.meter import MeterTarget, UsageDelta
from workspaces.host.metering.writer import UsageWriter
from workspaces.models import MeterRecord, Usage
from workspaces.usage.amounts import Amounts

pytestmark = pytest.mark.django_db(transaction=True)

TOO_LARGE = 2**63


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[UsageWriter]:
    monkeypatch.setattr(writing, "RETRY_SECONDS", 0.01)
    made = UsageWriter()
    yield made
    made._ended.set()
    made.stop()


def usage_delta(key: str, account: str, namespace: str, cpu: int) -> UsageDelta:
    target, used = MeterTarget(key, account, namespace, 1000, 128, True, 0), Amounts(cpu_time_ns=cpu)
    return UsageDelta(target, Sample(1, "r", cpu_time_ns=cpu), used, used, 0, 0, [], 0)


def test_one_machine_that_cannot_be_counted_keeps_no_other_from_it(api: Caller, writer: UsageWriter) -> None:
    rows = [make_workspace(api.account) for _ in range(3)]

    def deltas(*amounts: int) -> dict[str, UsageDelta]:
        pairs = zip(rows, amounts, strict=True)
        return {row.pk: usage_delta(row.pk, api.account.pk, row.namespace_id, cpu) for row, cpu in pairs}

    writer.submit(1, deltas(5, TOO_LARGE, 7))
    writer.submit(2, deltas(6, TOO_LARGE, 8))
    writer.start()
    until(lambda: len(writer.finished) == 2)
    assert writer._thread.is_alive()
    counted = dict(Usage.objects.values_list("workspace_id", "cpu_time_ns"))
    assert [counted.get(row.pk, 0) for row in rows] == [6, 0, 8]
    assert set(MeterRecord.objects.values_list("metered__workspace_id", flat=True)) == {rows[0].pk, rows[2].pk}


def test_a_failure_of_any_kind_ends_no_thread(
    api: Caller, writer: UsageWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, write = make_workspace(api.account), writing.write_deltas

    def fail_first(deltas: writing.Deltas, tick: int) -> None:
        if tick == 1:
            raise RuntimeError("unforeseen")
        write(deltas, tick)

    monkeypatch.setattr(writing, "write_deltas", fail_first)
    for tick in (1, 2):
        writer.submit(tick, {row.pk: usage_delta(row.pk, api.account.pk, row.namespace_id, 5)})
    writer.start()
    until(lambda: len(writer.finished) == 2)
    assert MeterRecord.objects.get().cpu_time_ns == 5
