"""What a machine uses while an operation works on it counts, and delays no sample of another."""

from __future__ import annotations

import threading

import pytest

from tests.workspaces.usage.measured import CPU, MeasuredHost, begin_operation, cpu_total, metered_cpu
from vmbackend.errors import BackendUnavailable
from workspaces.host.metering import busy
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind, OperationState
from workspaces.states import Status

pytestmark = pytest.mark.django_db

WORKING = [
    (OperationKind.START, Status.STARTING),
    (OperationKind.STOP, Status.STOPPING),
    (OperationKind.RESTART, Status.RESTARTING),
    (OperationKind.RESIZE, Status.RESIZING),
    (OperationKind.REINSTALL, Status.REINSTALLING),
    (OperationKind.RESTORE, Status.RESTORING),
    (OperationKind.WAKE, Status.WAKING),
    (OperationKind.CREATE, Status.CREATING),
]


def carry_out(operation: Operation) -> None:
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.RUNNING)


def come_to_rest(row: Workspace, operation: Operation, status: Status) -> None:
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.SUCCEEDED)
    Workspace.objects.filter(pk=row.pk).update(status=status, ready=status is Status.RUNNING)


@pytest.mark.parametrize(("kind", "status"), WORKING)
def test_what_a_machine_uses_while_an_operation_works_on_it_counts_though_it_ends(
    host: MeasuredHost, kind: OperationKind, status: Status
) -> None:
    row = host.machine()
    host.seconds(5, row, cpu_time_ns=CPU)
    operation = begin_operation(row, kind, status)
    host.seconds(5, row, cpu_time_ns=CPU)
    carry_out(operation)
    host.seconds(30, row, cpu_time_ns=CPU)
    host.driver.destroy(row.pk)
    come_to_rest(row, operation, Status.STOPPED)
    host.seconds(1)
    assert cpu_total(row) == metered_cpu(row) == 40 * CPU


def test_a_machine_that_is_restarted_without_end_is_counted(host: MeasuredHost) -> None:
    row = host.machine()
    for _ in range(10):
        operation = begin_operation(row, OperationKind.RESTART, Status.RESTARTING)
        carry_out(operation)
        host.seconds(5, row, cpu_time_ns=CPU)
        host.restart_machine(row)
        host.seconds(5, row, cpu_time_ns=CPU)
        come_to_rest(row, operation, Status.RUNNING)
    host.seconds(1)
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == 100 * CPU


def test_what_was_used_before_an_operation_is_stored_when_it_begins(host: MeasuredHost) -> None:
    row = host.machine()
    host.seconds(20, row, cpu_time_ns=CPU)
    carry_out(begin_operation(row, OperationKind.STOP, Status.STOPPING))
    host.seconds(1)
    assert cpu_total(row) == 20 * CPU


def test_guests_of_machines_with_an_operation_are_not_asked_for_their_disks(host: MeasuredHost) -> None:
    row, other = host.machine(), host.machine()
    begin_operation(other, OperationKind.RESTART, Status.RESTARTING)
    host.seconds(1)
    assert set(host.sampler.disks.machines) == {row.pk}


def test_a_machine_that_does_not_answer_during_an_operation_delays_no_other(
    host: MeasuredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "WAIT_SECONDS", 0.01)
    row, silent, stopping = host.machine(), host.machine(), host.machine()
    operations = [begin_operation(each, OperationKind.STOP, Status.STOPPING) for each in (silent, stopping)]
    for operation in operations:
        carry_out(operation)
    real, answers, asked = host.driver.samples, threading.Event(), []

    def samples(ids):
        asked.extend(ids)
        if silent.pk in ids:
            answers.wait(20)
        return real(ids)

    monkeypatch.setattr(host.driver, "samples", samples)
    for each in (row, silent, stopping):
        host.use(each, cpu_time_ns=7 * CPU)
    for _ in range(3):
        host.seconds(1)
    assert asked.count(silent.pk) == 1
    host.flush()
    assert cpu_total(row) == cpu_total(stopping) == 7 * CPU
    answers.set()
    host.sampler._busy._asked[silent.pk][1].result(120)
    host.seconds(1)
    host.flush()
    assert cpu_total(silent) == 7 * CPU


def test_an_answer_that_comes_after_a_later_sample_is_dropped(
    host: MeasuredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its counters may be smaller: taken for the newest, what follows would count twice."""
    monkeypatch.setattr(busy, "WAIT_SECONDS", 0.01)
    row = host.machine()
    host.seconds(5, row, cpu_time_ns=CPU)
    operation = begin_operation(row, OperationKind.PAUSE, Status.PAUSING)
    carry_out(operation)
    real, answers = host.driver.samples, threading.Event()

    def late(ids):
        found = real(ids)
        answers.wait(20)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(host.driver, "samples", late)
        host.seconds(1)
    come_to_rest(row, operation, Status.RUNNING)
    host.seconds(5, row, cpu_time_ns=CPU)
    call = host.sampler._busy._asked[row.pk][1]
    answers.set()
    call.result(120)
    host.seconds(5, row, cpu_time_ns=CPU)
    host.flush()
    assert cpu_total(row) == metered_cpu(row) == 15 * CPU


def test_a_machine_that_the_hypervisor_does_not_answer_for_is_asked_again(host: MeasuredHost) -> None:
    row = host.machine()
    carry_out(begin_operation(row, OperationKind.STOP, Status.STOPPING))
    host.driver.fail_next("samples", BackendUnavailable("busy"), times=2)
    host.seconds(3, row, cpu_time_ns=CPU)
    host.flush()
    assert cpu_total(row) == 3 * CPU
