"""Reading hosts, for staff."""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from common.errors import NotFound
from vmbackend.host_states import shown_state
from vmbackend.models import Host
from workspaces.models import Snapshot, Workspace


def get_host(host_id: str) -> Host:
    """Raise NotFound."""
    found: Host | None = _with_snapshots(Host.objects.filter(pk=host_id)).first()
    if found is None:
        raise NotFound("There is no such host.")
    return found


def find_host(name_or_id: str) -> Host:
    """Return the host with this id or name. Raise NotFound."""
    found = Host.objects.filter(Q(pk=name_or_id) | Q(name=name_or_id)).first()
    if found is None:
        raise NotFound(f"There is no host {name_or_id!r}.")
    return found


def listed_hosts(*, state: str = "", label: str = "", search: str = "") -> QuerySet[Any]:
    """Return hosts by name. `state` as users see it; `label`: `NAME`, or `NAME=VALUE`; `search`: a part of the name, or
    an id.
    """
    found = _with_snapshots(Host.objects.order_by("name"))
    if state:
        found = found.annotate(seen_as=shown_state()).filter(seen_as=state)
    name, _, value = label.partition("=")
    if name:
        found = found.filter(labels__contains={name: value}) if value else found.filter(labels__has_key=name)
    return found.filter(Q(name__icontains=search) | Q(pk=search)) if search else found


def _with_snapshots(hosts: QuerySet[Host]) -> QuerySet[Any]:
    """Add `snapshots_bytes`: of the snapshots that are on the host."""
    kept = Snapshot.objects.filter(host=OuterRef("pk"), removed_at=None).order_by().values("host")
    return hosts.annotate(snapshots_bytes=Coalesce(Subquery(kept.annotate(size=Sum("size_bytes")).values("size")), 0))


def workspace_count(host: Host) -> int:
    return Workspace.objects.filter(host=host).count()
