"""Rights of a host's role, by table and column: all that `vmhost` needs, and nothing else. A column more is one word.

A condition is SQL on a row, and holds for reading, for changing, and for what a change makes of the row. A column that
says whose a row is (its host, account, workspace, epoch) is in no UPDATE. `ALL` in `read`: every column.
"""

from __future__ import annotations

from dataclasses import dataclass

ME = "(current_user)::text"
ALL = ("*",)
ANY_ROW = "true"
OWN_HOST = f"host_id = {ME}"


_COMES = f"own.target_id = {ME} AND own.state = 'live'"


def of_own_workspace(table: str, column: str = "workspace_id") -> str:
    """Return the condition that a row names a workspace of the host."""
    return (
        f"EXISTS (SELECT 1 FROM workspaces_workspace own WHERE own.id = {table}.{column} AND own.host_id = {ME})"
    )  # fmt: skip


def in_own_network(table: str) -> str:
    """Return the condition that a row's address is one of the host's machines: the edge and commands are sent there."""
    return (
        f"({table}.ip IS NULL OR {table}.ip << (SELECT own.subnet::inet FROM vmbackend_host own WHERE own.id = {ME}))"
    )


def of_own_account(table: str, column: str = "account_id") -> str:
    """Return the condition that a row is of an account with a workspace or a snapshot on the host, or on its way."""
    return (
        f"(EXISTS (SELECT 1 FROM workspaces_workspace own WHERE own.account_id = {table}.{column}"
        f" AND own.host_id = {ME}) OR EXISTS (SELECT 1 FROM workspaces_snapshot own"
        f" WHERE own.account_id = {table}.{column} AND own.host_id = {ME})"
        f" OR EXISTS (SELECT 1 FROM workspaces_move own WHERE own.account_id = {table}.{column} AND {_COMES}))"
    )


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights of hosts to a table's rows for which `rows` holds.

    `written` is the condition on rows as they are after a write; by default the same. `seen`: rows that may be read
    besides. `removed`: rows that may be deleted; by default `rows`.
    """

    table: str
    rows: str
    read: tuple[str, ...] = ()
    insert: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    delete: bool = False
    written: str = ""
    seen: str = ""
    removed: str = ""


# What a host reports. What was given at the join (name, subnet, address) and its state are the control plane's.
_HOST_REPORT = (
    *("claim", "arch", "accelerated", "cpus", "memory_mb", "memory_free_mb", "disk_mb", "disk_free_mb", "snapshots"),
    *("templates", "capabilities", "pool", "orphans", "boot_id", "last_seen_at", "load", "version", "problem"),
    *("lease_since", "lease_until", "leaving_at", "images", "clock_offset_seconds"),
)
_WORKSPACE_STATE = (
    *("status", "ready", "error_code", "error_message", "updated_at", "image_digest", "ip", "ssh_host_key"),
    *("control_port", "started_at", "started_from", "source_snapshot_id", "unresponsive_since", "user_requested_stop"),
    *("last_exit_code", "last_exit_reason", "restart_count", "restart_due_at", "restart_history", "idle_due_at"),
    *(
        "memory_expires_at",
        "ttl_expires_at",
        "ttl_length",
        "network_stale",
        "ssh_stale",
        "stale_workloads",
        "ssh_enabled",
        "last_restart_at",
    ),
    *("cpu_millis", "memory_mb", "disk_size_mb", "applied_cpu_millis", "applied_memory_mb", "applied_disk_size_mb"),
    *("provisioning_state", "provisioning_phase", "provisioning_progress", "provisioning_message"),
    *("provisioning_error", "provisioning_error_code", "provisioning_attempts", "provisioning_updated_at"),
    *("provisioning_completed_at",),
)
_OPERATION_STATE = (
    *("state", "step", "params", "claim", "claim_epoch", "lease_until", "attempt", "cancel_requested", "notified_at"),
    *("deadline_at", "error_code", "error_message", "finished_at", "attention_at"),
)
_AMOUNTS = ("cpu_time_ns", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
_POINT = ("observed_ms", "cpu_capacity_ns", "memory_kib_ms", *_AMOUNTS)
_OWN_QUEUE = f"queue = 'host.' || {ME}"

GRANTS = (
    # Hosts know of each other: each keeps routes to the others.
    Grant("vmbackend_host", ANY_ROW, read=ALL, update=_HOST_REPORT, written=f"id = {ME}"),
    # Its version of the platform must be that of the database.
    Grant("django_migrations", ANY_ROW, read=ALL),
    Grant(
        "workspaces_workspace",
        OWN_HOST,
        read=ALL,
        update=_WORKSPACE_STATE,
        delete=True,
        written=f"{OWN_HOST} AND {in_own_network('workspaces_workspace')}",
        # What moves here is made here before it is this host's.
        seen=(
            "EXISTS (SELECT 1 FROM workspaces_move own"
            f" WHERE own.workspace_id = workspaces_workspace.id AND {_COMES})"
        ),
    ),
    Grant(
        "workspaces_move",
        f"source_id = {ME}",
        read=ALL,
        update=("offers", "needs", "still_since", "state", "error_code", "error_message", "finished_at", "left_at"),
        seen=f"target_id = {ME}",
    ),
    Grant(
        "workspaces_arrival",
        f"target_id = {ME}",
        read=ALL,
        update=(
            *("state", "received", "bytes_done", "attempts", "error_code", "error_message", "differs", "ssh_host_key"),
            *("control_port", "settled_at"),
        ),
        seen=f"EXISTS (SELECT 1 FROM workspaces_move own WHERE own.id = move_id AND own.source_id = {ME})",
    ),
    Grant(
        "workspaces_operation",
        _OWN_QUEUE,
        read=ALL,
        insert=ALL,
        update=_OPERATION_STATE,
        delete=True,
        # Those of a host where a workspace was before go with its row.
        seen=of_own_workspace("workspaces_operation"),
        removed=f"({_OWN_QUEUE} OR {of_own_workspace('workspaces_operation')})",
        written=f"{_OWN_QUEUE} AND {of_own_workspace('workspaces_operation')}",
    ),
    Grant(
        "workspaces_snapshot",
        f"({OWN_HOST} OR {of_own_workspace('workspaces_snapshot')})",
        read=ALL,
        update=(
            *("status", "error_code", "error_message", "memory", "differs", "size_bytes", "pool_mb", "charged_until"),
            *("last_used_at", "expires_at", "deleted_at", "removed_at", "forks", "image_digest", "workspace_id"),
        ),
        # A workspace that moved away has left some here.
        written=(
            f"(workspace_id IS NULL OR {of_own_workspace('workspaces_snapshot')} OR EXISTS (SELECT 1 FROM"
            " workspaces_move own WHERE own.workspace_id = workspaces_snapshot.workspace_id"
            f" AND own.account_id = workspaces_snapshot.account_id AND own.source_id = {ME}))"
        ),
    ),
    Grant(
        "workspaces_warmmachine",
        OWN_HOST,
        read=ALL,
        insert=ALL,
        update=ALL,
        delete=True,
        written=f"{OWN_HOST} AND {in_own_network('workspaces_warmmachine')}",
    ),
    Grant("workspaces_releasedaddress", OWN_HOST, read=ALL),
    Grant("workspaces_warmrequest", OWN_HOST, read=ALL, delete=True),
    # Usage and its charges
    Grant(
        "workspaces_usage",
        of_own_workspace("workspaces_usage"),
        read=ALL,
        insert=ALL,
        update=("total_cpu_time_ns", "total_disk_read", "total_disk_write", "total_net_rx", "total_net_tx",
                "generation", "tick", *_AMOUNTS),
        delete=True,
    ),
    Grant(
        "workspaces_usagepoint",
        "EXISTS (SELECT 1 FROM workspaces_usage own WHERE own.id = workspaces_usagepoint.usage_id)",
        read=ALL,
        insert=ALL,
        update=_POINT,
        delete=True,
    ),
    # The rows of a workspace that is deleted stay its host's, which still charges the last tick.
    Grant(
        "workspaces_metered",
        f"({OWN_HOST} OR {of_own_workspace('workspaces_metered')})",
        read=ALL,
        insert=ALL,
        update=("workspace_name", "host_id"),
        written=(
            f"{OWN_HOST} AND EXISTS (SELECT 1 FROM workspaces_workspace own WHERE own.id = workspace_id"
            f" AND own.account_id = workspaces_metered.account_id AND own.host_id = {ME})"
        ),
    ),
    Grant(
        "workspaces_meterrecord",
        "EXISTS (SELECT 1 FROM workspaces_metered own WHERE own.id = metered_id)",
        read=("metered_id", "tick"),
        insert=ALL,
        written=f"EXISTS (SELECT 1 FROM workspaces_metered own WHERE own.id = metered_id AND own.host_id = {ME})",
    ),
    # What a row of a workspace is read with, and what goes with it
    Grant(
        "accounts_account",
        of_own_account("accounts_account", "id"),
        read=("id", "name", "plan_id", "is_active", "workspace_count", "created_at", "updated_at"),
        update=("workspace_count",),
    ),
    Grant("accounts_plan", ANY_ROW, read=ALL),
    Grant("namespaces_namespace", of_own_account("namespaces_namespace"), read=ALL),
    Grant(
        "workspaces_publicport",
        of_own_workspace("workspaces_publicport"),
        read=("id", "workspace_id", "port", "slug", "hash"),
        delete=True,
    ),
    Grant(
        "workspaces_portlink",
        "EXISTS (SELECT 1 FROM workspaces_publicport own WHERE own.id = port_id)",
        read=("port_id",),
        delete=True,
    ),
    Grant(
        "workspaces_streamtoken", of_own_workspace("workspaces_streamtoken"), read=("workspace_id",), delete=True
    ),
    Grant(
        "notifications_sendtoken", of_own_workspace("notifications_sendtoken"), read=("workspace_id",), delete=True
    ),
    Grant("sandboxes_stafftoken", of_own_workspace("sandboxes_stafftoken"), read=("workspace_id",), delete=True),
    Grant(
        "sandboxes_sandbox",
        of_own_workspace("sandboxes_sandbox"),
        read=("id", "workspace_id", "created_at"),
        delete=True,
    ),
    # What it tells: the activity of its workspaces, and their events; addresses and secrets of webhooks it never reads.
    Grant(
        "workspaces_activity",
        of_own_workspace("workspaces_activity"),
        read=("id", "workspace_id"),
        insert=ALL,
        written=(
            "EXISTS (SELECT 1 FROM workspaces_workspace own WHERE own.id = workspace_id"
            f" AND own.account_id = workspaces_activity.account_id AND own.host_id = {ME})"
        ),
    ),
    Grant(
        "webhooks_subscription",
        of_own_account("webhooks_subscription"),
        read=("id", "account_id", "namespace_id", "events", "active", "direct_key"),
    ),
    Grant(
        "webhooks_event",
        of_own_account("webhooks_event"),
        read=("id", "account_id"),
        insert=ALL,
        written=(
            f"split_part(type, '.', 1) IN ('vm', 'snapshot', 'workspace') AND {of_own_account('webhooks_event')}"
        ),
    ),
    Grant(
        "webhooks_delivery",
        "false",
        insert=ALL,
        written=(
            "EXISTS (SELECT 1 FROM webhooks_event e JOIN webhooks_subscription s ON s.account_id = e.account_id"
            " WHERE e.id = event_id AND s.id = subscription_id)"
        ),
    ),
)  # fmt: skip
