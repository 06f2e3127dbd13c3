"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import current_app, shared_task

from vmbackend.models import Host
from workspaces.host import console_log, engine, machine_info
from workspaces.host.metering.compaction import compact
from workspaces.host.network_policy import apply
from workspaces.host.process import reconcile, side
from workspaces.host.reconcile.operations import expire
from workspaces.host.sweep import sweep
from workspaces.host_rpc import answer


@shared_task
def run_operation(operation_id: str) -> None:
    """Rung on the queue of the workspace's host."""
    engine.run(operation_id, side())


@shared_task
def reconcile_host() -> int:
    """Rung on each host's queue."""
    return reconcile(side())


@shared_task
def reconcile_hosts() -> None:
    """Beat: ring for every host."""
    for host in Host.objects.all():
        current_app.send_task("workspaces.tasks.reconcile_host", queue=host.queue, expires=30)


@shared_task
def expire_operations() -> int:
    """Beat: operations past their deadline."""
    return expire()


@shared_task
def sweep_due() -> int:
    """Beat: TTL, idle sleep, the end of kept memory, restarts."""
    return sweep()


@shared_task
def answer_boot_log(workspace_id: str, key: str, what: str, argument: int) -> None:
    """Rung on the queue of the workspace's host by who waits for its console log."""
    answer(key, console_log.answer(side().driver.boot_log(workspace_id), what, argument))


@shared_task
def apply_network(workspace_id: str, key: str, close: list[int]) -> None:
    """Rung on the queue of the workspace's host by who changed its network."""
    answer(key, apply(side().driver, workspace_id, close).encode())


@shared_task
def answer_machine_info(workspace_id: str, key: str) -> None:
    """Rung on the queue of the workspace's host by who wants to know how its machine is."""
    answer(key, machine_info.answer(side().driver, workspace_id))


@shared_task
def compact_usage() -> int:
    """Beat: tiers of usage are rolled up, and what is too old goes."""
    return compact()
