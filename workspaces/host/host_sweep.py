"""The sweep over hosts: the worker tells of those that fell silent and that are back, and writes what was lost with
those that staff gave up. Any number of sweeps at once: each step is a guarded update and what follows from it, in one
transaction.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from common.batches import batched
from vmbackend.host_states import LEASE_FOR, HostState, is_control_plane_fault, lease_stands
from vmbackend.models import Host
from vmbackend.services import announce_host
from workspaces.audit import record_members
from workspaces.host.host_loss import lose_members
from workspaces.host.reconcile.operations import fail_abandoned
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE, OperationKind
from workspaces.states import HOST_LOST, Status

logger = logging.getLogger(__name__)

ENTRIES = 1000
CREATES = 100
# How long a creation waits for a host that fell silent: its owner may place it elsewhere then.
CREATE_GRACE = timedelta(seconds=60)
AWAY = "The host of this workspace cannot be reached."
BACK = "The host of this workspace is back."
NO_HOST = "The host did not answer any more; another attempt is placed on one that does."


def sweep_hosts() -> int:
    """Sweep once. Return how many hosts, creations and workspaces were changed."""
    changed = _tell_of_hosts() + _fail_creations()
    for host in Host.objects.filter(state=HostState.GONE):
        changed += lose_members(host)
    return changed


def _tell_of_hosts() -> int:
    living = ~Q(state=HostState.GONE)
    silent = list(Host.objects.filter(living, is_silent=False).exclude(lease_stands()).exclude(lease_since=None))
    told = sum(_tell(host, silent=True) for host in silent)
    if told and is_control_plane_fault(Host.objects.filter(living)):
        logger.error(
            "%s fell silent at once: it is taken for a fault of the control plane, of its database or network",
            ", ".join(host.name for host in silent),
        )
    back = Host.objects.filter(living, lease_stands(), is_silent=True)
    return told + sum(_tell(host, silent=False) for host in back)


@transaction.atomic
def _tell(host: Host, *, silent: bool) -> bool:
    """Tell the owners of the host's workspaces, in as many statements as there are thousands. False: another sweep did,
    or the host is not so any more.
    """
    if not announce_host(host_id=host.pk, silent=silent):
        return False
    members = Workspace.objects.filter(host=host).exclude(status__in=[Status.DESTROYED, Status.FAILED])
    members = members.exclude(status=Status.LOST, error_code=HOST_LOST)
    action, text = ("host_unreachable", AWAY) if silent else ("host_back", BACK)
    for part in batched(list(members.order_by().values_list("account_id", "pk")), ENTRIES):
        record_members(part, action, text)
    logger.warning("host %s %s", host.name, "is unreachable: its lease is over" if silent else "is back")
    return True


def _fail_creations() -> int:
    """Fail the creations of hosts that are silent for longer than the grace time."""
    long_silent = Q(workspace__host__last_seen_at__lt=Now() - LEASE_FOR - CREATE_GRACE)
    creations = Operation.objects.filter(long_silent, state__in=LIVE, kind=OperationKind.CREATE)
    waiting = creations.exclude(lease_stands("workspace__host__")).order_by("created_at")
    return sum(fail_abandoned(operation, "host_unreachable", NO_HOST) for operation in list(waiting[:CREATES]))
