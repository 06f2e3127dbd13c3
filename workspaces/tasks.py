"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import current_app, shared_task

from vmbackend.models import Host
from workspaces import namespace_members, promised
from workspaces.charging import billing, check, snapshots, wakeups
from workspaces.charging import services as charging
from workspaces.custom_domains.targets import disconnect_gone_workspaces
from workspaces.host import console_log, due_times, engine, host_sweep, machine_info, moved, stored_snapshots, sweep
from workspaces.host.metering import compaction
from workspaces.host.network_policy import apply_policy
from workspaces.host.orphans import put_back_reply, removal_reply
from workspaces.host.process import host_runtime, reconcile_rows_and_machines
from workspaces.host.reconcile import operations
from workspaces.host_rpc import reply
from workspaces.moves import drains
from workspaces.moves.commits import commit_ready_moves


@shared_task
def run_operation(operation_id: str) -> None:
    """Notify the workspace's host of an operation; on the host's queue."""
    engine.run_operation(operation_id, host_runtime())


@shared_task
def reconcile_host() -> int:
    """Reconcile one host; on its queue, every minute."""
    return reconcile_rows_and_machines(host_runtime())


@shared_task
def receive_moves() -> None:
    """Begin what moves to this host; on its queue."""
    host_runtime().arrivals.begin()


@shared_task
def settle_moves() -> int:
    """Remove what is not needed of moves that ended; on the queues of both hosts."""
    return moved.settle_moves(host_runtime())


@shared_task
def remove_snapshots() -> int:
    """Remove the files of deleted snapshots; on the queue of their host."""
    return stored_snapshots.remove_deleted_snapshots(host_runtime())


@shared_task
def charge_snapshots() -> int:
    """Charge credits for snapshots by the GB-hour, and remove the rows of those that are gone. Called by Celery
    beat.
    """
    return snapshots.remove_gone_snapshots() + snapshots.charge_due_snapshots()


@shared_task
def reconcile_hosts() -> None:
    """Reconcile every host. Called by Celery beat."""
    for host in Host.objects.all():
        current_app.send_task("workspaces.tasks.reconcile_host", queue=host.queue, expires=30)


@shared_task
def prove_promises() -> int:
    """Compare the counters of hosts with their workspaces, and repair them. Called by Celery beat."""
    return promised.prove_promises()


@shared_task
def expire_operations() -> int:
    """Fail operations past their deadline. Called by Celery beat."""
    return operations.expire_operations()


@shared_task
def sweep_hosts() -> int:
    """Tell of hosts that fell silent or are back, and write what was lost with others. Called by Celery beat."""
    return host_sweep.sweep_hosts()


@shared_task
def drain_hosts() -> int:
    """Move workspaces away from hosts that are drained. Called by Celery beat."""
    return drains.drain_hosts()


@shared_task
def disconnect_domains() -> int:
    """Disconnect the domains of workspaces that are gone. Called by Celery beat."""
    return disconnect_gone_workspaces()


@shared_task
def sweep_due() -> int:
    """Sweep: TTL, idle sleep, expiry of saved memory, restarts, commits of moves. Called by Celery beat."""
    return sweep.sweep_due() + commit_ready_moves()


@shared_task
def correct_due_times() -> int:
    """Correct due times that were written before the clock was set back. Called by Celery beat."""
    return due_times.due_times_correct()


@shared_task
def stop_suspended() -> int:
    """Stop the workspaces that run in suspended namespaces. Called by Celery beat."""
    return namespace_members.stop_suspended_members()


@shared_task
def charge_metered() -> int:
    """Charge credits for metered usage. Called by Celery beat, and after each writer's commit."""
    wakeups.charge_begun()
    return charging.charge_metered()


@shared_task
def close_billing_cycles() -> int:
    """Send `credits.usage` for billing cycles that are over. Called by Celery beat."""
    return billing.cycles_close()


@shared_task
def check_ledger() -> None:
    """Check once a night whether ledger, balances, sums and records agree. Called by Celery beat."""
    check.ledger_check_nightly()


@shared_task
def answer_boot_log(workspace_id: str, key: str, what: str, argument: int) -> None:
    """Reply with a workspace's console log (`host_rpc`); on the queue of its host."""
    reply(key, console_log.read_console(host_runtime().driver.boot_log(workspace_id), what, argument))


@shared_task
def apply_network(workspace_id: str, key: str, close: list[int]) -> None:
    """Apply a workspace's network policy and reply (`host_rpc`); on the queue of its host."""
    reply(key, apply_policy(host_runtime().driver, workspace_id, close).encode())


@shared_task
def answer_machine_info(workspace_id: str, key: str) -> None:
    """Reply with the state of a workspace's machine (`host_rpc`); on the queue of its host."""
    reply(key, machine_info.machine_info_reply(host_runtime().driver, workspace_id))


@shared_task
def put_orphan_back(workspace_id: str, key: str, epoch: int, ip: str) -> None:
    """Make a workspace's kept files a machine and reply (`host_rpc`); on the queue of the host that has them."""
    reply(key, put_back_reply(host_runtime(), workspace_id, epoch, ip))


@shared_task
def remove_orphans(workspace_id: str, key: str, name: str) -> None:
    """Remove the kept files of a workspace and reply (`host_rpc`); on the queue of the host that has them."""
    reply(key, removal_reply(host_runtime(), workspace_id, name))


@shared_task
def compact_usage() -> int:
    """Roll up the tiers of usage and remove expired points. Called by Celery beat."""
    return compaction.compact_usage()
