"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import current_app, shared_task

from vmbackend.models import Host
from workspaces import namespace_members
from workspaces.charging import billing, check, wakeups
from workspaces.charging import services as charging
from workspaces.host import console_log, due_times, engine, machine_info, sweep
from workspaces.host.metering import compaction
from workspaces.host.network_policy import apply_policy
from workspaces.host.process import host_runtime, reconcile_rows_and_machines
from workspaces.host.reconcile import operations
from workspaces.host_rpc import reply


@shared_task
def run_operation(operation_id: str) -> None:
    """On the queue of the workspace's host: notifies it of an operation."""
    engine.run_operation(operation_id, host_runtime())


@shared_task
def reconcile_host() -> int:
    """On each host's queue, every minute."""
    return reconcile_rows_and_machines(host_runtime())


@shared_task
def reconcile_hosts() -> None:
    """Celery beat: reconcile every host."""
    for host in Host.objects.all():
        current_app.send_task("workspaces.tasks.reconcile_host", queue=host.queue, expires=30)


@shared_task
def expire_operations() -> int:
    """Celery beat: fail operations past their deadline."""
    return operations.expire_operations()


@shared_task
def sweep_due() -> int:
    """Celery beat: TTL, idle sleep, expiry of saved memory, restarts."""
    return sweep.sweep_due()


@shared_task
def correct_due_times() -> int:
    """Celery beat: due times that were written before the clock was set back."""
    return due_times.due_times_correct()


@shared_task
def stop_suspended() -> int:
    """Celery beat: stop what runs in suspended namespaces."""
    return namespace_members.stop_suspended_members()


@shared_task
def charge_metered() -> int:
    """Celery beat, and after each writer's commit: charge credits for what was metered."""
    wakeups.charge_begun()
    return charging.charge_metered()


@shared_task
def close_billing_cycles() -> int:
    """Celery beat: `credits.usage` for billing cycles that are over."""
    return billing.cycles_close()


@shared_task
def check_ledger() -> None:
    """Celery beat: once a night, whether ledger, balances, sums and records agree."""
    check.ledger_check_nightly()


@shared_task
def answer_boot_log(workspace_id: str, key: str, what: str, argument: int) -> None:
    """On the queue of the workspace's host: replies with its console log (`host_rpc`)."""
    reply(key, console_log.read_console(host_runtime().driver.boot_log(workspace_id), what, argument))


@shared_task
def apply_network(workspace_id: str, key: str, close: list[int]) -> None:
    """On the queue of the workspace's host: applies its network policy (`host_rpc`)."""
    reply(key, apply_policy(host_runtime().driver, workspace_id, close).encode())


@shared_task
def answer_machine_info(workspace_id: str, key: str) -> None:
    """On the queue of the workspace's host: replies with the state of its machine (`host_rpc`)."""
    reply(key, machine_info.machine_info_reply(host_runtime().driver, workspace_id))


@shared_task
def compact_usage() -> int:
    """Celery beat: roll up the tiers of usage and remove expired points."""
    return compaction.compact_usage()
