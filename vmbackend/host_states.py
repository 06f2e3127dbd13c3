"""The states of a host: the intent of staff, and the lease that shows whether its vmhost lives.

    active <-> draining <-> maintenance     by staff; each leads to each
    active, draining, maintenance -> gone   given up by staff, only once the lease is over
    gone -> active                          put back by staff

`unreachable` is no state of the row: it is what users see of a host whose lease is over.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Greatest, Now

# Six renewals.
LEASE_FOR = timedelta(seconds=30)
# An end that lies further ahead was written before the database's clock was set back (`common.work.clock`).
LONGEST = 2 * LEASE_FOR
UNREACHABLE = "unreachable"


class HostState(models.TextChoices):
    """The intent of staff. `active` takes new machines; `draining` takes none, its own are started there still;
    in `maintenance` nothing is started, and what runs goes on; `gone` was given up, with all that was on it.
    """

    ACTIVE = "active"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    GONE = "gone"


# As users see them.
SHOWN_STATES = (*HostState.values, UNREACHABLE)
# For each state, those that it may be entered from.
ALLOWED: dict[HostState, frozenset[HostState]] = {
    HostState.ACTIVE: frozenset({HostState.DRAINING, HostState.MAINTENANCE, HostState.GONE}),
    HostState.DRAINING: frozenset({HostState.ACTIVE, HostState.MAINTENANCE}),
    HostState.MAINTENANCE: frozenset({HostState.ACTIVE, HostState.DRAINING}),
    HostState.GONE: frozenset({HostState.ACTIVE, HostState.DRAINING, HostState.MAINTENANCE}),
}


def lease_end() -> CombinedExpression:
    """Return when a lease ends that is taken or renewed by this statement."""
    return Now() + LEASE_FOR


def lease_stands(prefix: str = "") -> Q:
    """Return hosts whose lease stands; with a prefix as `host__`, rows that belong to one."""
    return Q(**{f"{prefix}lease_until__gt": Now(), f"{prefix}lease_until__lte": Now() + LONGEST})


def host_answers(prefix: str = "") -> Q:
    """Return hosts that carry out operations: the lease stands, and the hypervisor answers."""
    return lease_stands(prefix) & Q(**{f"{prefix}problem": ""}) & ~Q(**{f"{prefix}state": HostState.GONE})


def takes_new(prefix: str = "") -> Q:
    """Return hosts on which new machines may be placed."""
    return host_answers(prefix) & Q(**{f"{prefix}state": HostState.ACTIVE})


def is_control_plane_fault(hosts: QuerySet[Any]) -> bool:
    """Return whether so many of the hosts, at least two and a third, fell silent within a lease of each other, that not
    they are at fault but what they report to. One query.
    """
    times = list(hosts.exclude(lease_since=None).values_list("last_seen_at", "lease_until"))
    silent = sorted(seen for seen, until in times if until is None)
    together = [seen for seen in silent if silent[-1] - seen <= LEASE_FOR]
    return len(together) >= 2 and 3 * len(together) >= len(times) - len(silent) + len(together)


def shown_state(prefix: str = "") -> Case:
    """Return the state as users see it, of rows that belong to a host; null without one."""
    state = F(f"{prefix}state")
    stays = Q(**{f"{prefix}state": HostState.GONE}) | lease_stands(prefix) | Q(**{f"{prefix}state": None})
    return Case(When(stays, then=state), default=Value(UNREACHABLE), output_field=models.CharField(null=True))


def shown_since(prefix: str = "") -> Case:
    """Return since when the host is in that state."""
    state_since, lease_since = F(f"{prefix}state_since"), F(f"{prefix}lease_since")
    return Case(
        When(Q(**{f"{prefix}state": HostState.GONE}), then=state_since),
        When(lease_stands(prefix), then=Greatest(state_since, lease_since)),
        default=F(f"{prefix}last_seen_at") + LEASE_FOR,
        output_field=models.DateTimeField(null=True),
    )
