"""Workspace objects as responses show them (specification, Workspace object, Details object, quota object).

Plain functions: a list of a hundred rows is made in a few milliseconds. `api/schemas.py` describes the same shapes for
the OpenAPI document, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import prefetch_related_objects
from django.utils import timezone

from common.durations import format_duration
from common.times import iso
from edge.address import label, public_address
from workspaces.images.catalog_snapshots import image_fields
from workspaces.models import PublicPort, Workspace
from workspaces.models.workspace import Mode


def workspace_body(row: Workspace, now: datetime | None = None) -> dict[str, Any]:
    """The workspace object, of a row that `selectors` gave."""
    return {
        "id": row.pk,
        "name": row.name,
        "slug": row.slug,
        "namespace": row.namespace_slug,
        "mode": row.mode,
        "type": row.type,
        "image": row.image,
        "preset": row.preset or None,
        "logo": row.logo,
        "ip": row.ip,
        "uptime": row.uptime(now),
        "start_time": iso(row.started_at) if row.is_running else None,
        "status": row.status,
        "ready": row.ready,
        "info": {
            "status": row.status,
            "is_running": row.is_running,
            "user_requested_stop": row.user_requested_stop,
            "error": error_body(row),
        },
        "access": {"ssh_enabled": row.ssh_enabled},
        "network": network_body(row),
        "public_ports": ports_body(row),
        "resources": resources_body(row),
        **image_fields(row.catalog_snapshot),
        "provisioning": provisioning_body(row),
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
    }


def error_body(row: Workspace) -> dict[str, str] | None:
    """Why the last operation failed, if it did."""
    return {"code": row.error_code, "message": row.error_message} if row.error_code else None


def network_body(row: Workspace) -> dict[str, Any]:
    return {
        "allow_internet": row.allow_internet,
        "ingress_ports": row.ingress_ports,
        "egress_ports": row.egress_ports,
        "egress": row.egress,
        "public_access": row.public_access,
        "ingress": row.ingress,
    }


def resources_body(row: Workspace) -> dict[str, Any]:
    return {"cpus": whole_or_fraction(row.cpus), "memory_mb": row.memory_mb, "disk_size_mb": row.disk_size_mb}


def whole_or_fraction(value: float) -> int | float:
    """Whole CPUs as 2, fractions as 0.5."""
    return int(value) if value == int(value) else value


def provisioning_body(row: Workspace) -> dict[str, Any]:
    failed = row.provisioning_error_code
    return {
        "state": row.provisioning_state,
        "phase": row.provisioning_phase,
        "progress": row.provisioning_progress,
        "message": row.provisioning_message,
        "error": {"code": failed, "message": row.provisioning_error} if failed else None,
        "attempts": row.provisioning_attempts,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.provisioning_updated_at),
        "completed_at": iso(row.provisioning_completed_at),
    }


def lifecycle_body(row: Workspace) -> dict[str, Any]:
    """The lifecycle object, without what only the host knows; of a row with every column."""
    temporary = row.mode == Mode.TEMPORARY
    return {
        "mode": row.mode,
        "status": row.status,
        "restart_policy": row.restart_policy,
        "max_restarts": row.max_restarts,
        "restart_info": {
            "count": row.restart_count,
            "last_exit_code": row.last_exit_code,
            "last_reason": row.last_exit_reason or None,
            "last_restart_at": iso(row.last_restart_at),
            "history": row.restart_history,
        },
        "ttl": format_duration(row.ttl_seconds) if temporary and row.ttl_seconds else None,
        "ttl_action": row.ttl_action if temporary else None,
        "ttl_expires_at": iso(row.ttl_expires_at),
        "remove_on_exit": row.remove_on_exit,
        "uptime": row.uptime(),
        "idle": idle_body(row),
    }


def idle_body(row: Workspace) -> dict[str, Any]:
    """The normalized idle policy, in seconds."""
    return {
        "suspend_after": row.suspend_after,
        "stop_after": row.stop_after,
        "enabled": row.suspend_after > 0,
    }


def config_body(row: Workspace) -> dict[str, Any]:
    """What the machine is made from; values of the environment are secrets and are left out."""
    return {
        "image": row.image,
        "image_digest": row.image_digest or None,
        "preset": row.preset or None,
        **resources_body(row),
        "ttl": row.ttl_seconds,
        "ttl_action": row.ttl_action,
        "remove_on_exit": row.remove_on_exit,
        "restart_policy": row.restart_policy,
        "max_restarts": row.max_restarts,
        "keep_logs": row.keep_logs,
        "static_network": row.static_network,
        "network_config": {"allow_internet": row.allow_internet, "public_ingress": row.public_access},
        "ssh_access": row.ssh_enabled,
        "env": [{"key": key, "value": "***"} for key in sorted(row.env)],
        "cmd": row.cmd,
        "workloads": [{**item, "env": sorted(item.get("env") or {})} for item in row.workloads],
        "wait_for_init": row.wait_for_init,
        "desktop": {"enabled": row.desktop_enabled},
        "proxy_assignment_id": row.proxy_assignment_id,
    }


def list_body(rows: list[Workspace]) -> list[dict[str, Any]]:
    now = timezone.now()
    load_ports(rows)
    return [workspace_body(row, now) for row in rows]


def load_ports(rows: Iterable[Workspace]) -> None:
    """Read the public ports of all rows that have any, by one query."""
    prefetch_related_objects([row for row in rows if row.published_ports], "public_ports")


def ports_body(row: Workspace) -> list[dict[str, Any]]:
    """Every public port; without a query where there are none or `load_ports` has read them."""
    return [port_body(port) for port in row.public_ports.all()] if row.published_ports else []


def port_body(port: PublicPort) -> dict[str, Any]:
    first, address = label(port.slug, port.hash), public_address(settings.PUBLIC_URL)
    return {
        "port": port.port,
        "hash": port.hash,
        "domain": address.domain(first),
        "label": port.label,
        "url": address.url(first),
    }
