"""Rows made directly, for tests that need many of them or a state that only time would bring."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from accounts.models import Account
from accounts.services import workspaces_counted
from vmbackend.host_states import LEASE_FOR, lease_end
from vmbackend.models import Host
from workspaces.models import Operation, PortLink, PublicPort, Snapshot, Workspace
from workspaces.models.operation import LIVE
from workspaces.models.public_port import Access
from workspaces.models.snapshot import SnapshotStatus
from workspaces.runtime import access
from workspaces.runtime.tokens import make_gateway_token
from workspaces.states import Provisioning, ProvisioningPhase, Status

_numbers = count(1)
READY = {
    "status": Status.RUNNING,
    "ready": True,
    "provisioning_state": Provisioning.READY,
    "provisioning_phase": ProvisioningPhase.READY,
    "provisioning_progress": 100,
}


def make_host(name: str = "local", *, seen: datetime | None = None) -> Host:
    """A host that is heard of now, or was at `seen`."""
    size = {"memory_mb": 65536, "memory_free_mb": 65536, "disk_mb": 1 << 20, "disk_free_mb": 1 << 20}
    at = seen or timezone.now()
    lease = {"last_seen_at": at, "lease_since": at, "lease_until": at + LEASE_FOR}
    fields = {"subnet": "10.200.0.0/20", "cpus": 16, **lease, **size}
    return Host.objects.get(pk=Host.objects.update_or_create(name=name, defaults=fields)[0].pk)


def renew_leases(**which: Any) -> None:
    """Hosts are heard of now."""
    Host.objects.filter(**which).update(last_seen_at=Now(), lease_since=Now(), lease_until=lease_end())


def end_leases(ago: timedelta = timedelta(seconds=1), **which: Any) -> None:
    """Hosts are silent: their leases ended so long ago."""
    Host.objects.filter(**which).update(last_seen_at=Now() - LEASE_FOR - ago, lease_until=Now() - ago)


def make_workspace(account: Account, *, namespace: Any = None, **fields: Any) -> Workspace:
    """A workspace's row without a machine; running unless `status` says otherwise."""
    number = next(_numbers)
    made = {
        "name": f"row {number}",
        "slug": f"row-{number}",
        "image": "localhost/tiny:1",
        "cpu_millis": 100,
        "memory_mb": 128,
        "disk_size_mb": 64,
        "started_at": timezone.now(),
        **READY,
        **fields,
    }
    for name in ("cpu_millis", "memory_mb", "disk_size_mb"):
        made.setdefault(f"applied_{name}", made[name])
    if made["status"] != Status.RUNNING:
        made.update({"ready": False} | fields)
    namespace = namespace or account.namespaces.get(is_default=True)
    workspaces_counted(account, Workspace.objects.filter(account=account).count() + 1)
    return Workspace.objects.create(account=account, namespace=namespace, **made)


def runtime_token(workspace: Workspace) -> str:
    """A token of the workspace's runtime, which is switched on."""
    return make_gateway_token(access.runtime_enable(workspace=workspace, actor="test"))[0]


def snapshot_row(workspace: Workspace, **fields: Any) -> Snapshot:
    """A complete snapshot of a workspace, without files; not stored yet."""
    number = next(_numbers)
    made = {
        "name": f"snapshot {number}",
        "status": SnapshotStatus.READY,
        "image": workspace.image,
        "image_digest": "sha256:0",
        "cpu_millis": workspace.cpu_millis,
        "memory_mb": workspace.memory_mb,
        "disk_size_mb": workspace.disk_size_mb,
        "size_bytes": 1 << 20,
        "pool_mb": 1,
        **fields,
    }
    made.setdefault("host", workspace.host or make_host("of snapshots", seen=timezone.now() - timedelta(days=1)))
    return Snapshot(account_id=workspace.account_id, namespace_id=workspace.namespace_id, workspace=workspace, **made)


def port_link(workspace: Workspace, port: int = 8080) -> PortLink:
    """A link to a private port of a workspace, which is published if it was not; its secret is not known."""
    fields = {"access": Access.PRIVATE, "account_id": workspace.account_id}
    found, made = PublicPort.objects.get_or_create(workspace=workspace, port=port, defaults=fields)
    if made:
        workspace.published_ports += 1
        workspace.save(update_fields=["published_ports"])
    soon = timezone.now() + timedelta(hours=1)
    return PortLink.objects.create(
        port=found, account_id=workspace.account_id, token_hash=f"link {next(_numbers)}", expires_at=soon
    )


def live_operations() -> int:
    return Operation.objects.filter(state__in=LIVE).count()
