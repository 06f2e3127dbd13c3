"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import current_app, shared_task

from vmbackend.models import Host
from workspaces.host import console_log, engine, machine_info, sweep
from workspaces.host.metering import compaction
from workspaces.host.network_policy import apply_policy
from workspaces.host.process import host_runtime, reconcile
from workspaces.host.reconcile import operations
from workspaces.host_rpc import reply


@shared_task
def run_operation(operation_id: str) -> None:
    """Rung on the queue of the workspace's host."""
    engine.run_operation(operation_id, host_runtime())


@shared_task
def reconcile_host() -> int:
    """Rung on each host's queue."""
    return reconcile(host_runtime())


@shared_task
def reconcile_hosts() -> None:
    """Beat: ring for every host."""
    for host in Host.objects.all():
        current_app.send_task("workspaces.tasks.reconcile_host", queue=host.queue, expires=30)


@shared_task
def expire_operations() -> int:
    """Beat: operations past their deadline."""
    return operations.expire_operations()


@shared_task
def sweep_due() -> int:
    """Beat: TTL, idle sleep, the end of kept memory, restarts."""
    return sweep.sweep_due()


@shared_task
def answer_boot_log(workspace_id: str, key: str, what: str, argument: int) -> None:
    """Rung on the queue of the workspace's host by who waits for its console log."""
    reply(key, console_log.read_console(host_runtime().driver.boot_log(workspace_id), what, argument))


@shared_task
def apply_network(workspace_id: str, key: str, close: list[int]) -> None:
    """Rung on the queue of the workspace's host by who changed its network."""
    reply(key, apply_policy(host_runtime().driver, workspace_id, close).encode())


@shared_task
def answer_machine_info(workspace_id: str, key: str) -> None:
    """Rung on the queue of the workspace's host by who wants to know how its machine is."""
    reply(key, machine_info.machine_info_reply(host_runtime().driver, workspace_id))


@shared_task
def compact_usage() -> int:
    """Beat: tiers of usage are rolled up, and what is too old goes."""
    return compaction.compact_usage()
