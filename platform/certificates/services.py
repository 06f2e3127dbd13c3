"""Requests for certificates. What follows is written by steps.py, orders.py and outcomes.py under a row's lease."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from certificates import limits
from certificates.errors import RenewalInProgress
from certificates.leases import LEASE, LONGEST_CA_PAUSE
from certificates.models import Certificate, Status
from certificates.outcomes import NO_ORDER
from common.errors import RateLimited
from common.work.clock import moment_has_come


@transaction.atomic
def certificate_request(names: Collection[str], owner: str | None = None) -> None:
    """Request a certificate for each of these names, renewed until it is removed. Idempotent.

    Names are lower-case ASCII (IDNA). `owner`: whose orders are limited together; None: as before. With another owner
    a name waits no longer for what was refused to the former one; an order under way, or a certificate, goes on.
    Writes rows in the caller's transaction; the process `pages` looks for such rows each second.
    """
    now = timezone.now()
    for name in sorted(set(names)):
        row, is_new = Certificate.objects.select_for_update().get_or_create(
            name=name, defaults={"owner": owner or "", "next_attempt_at": now, "due_at": now}
        )
        if is_new:
            continue
        changes: dict[str, Any] = {} if owner in (None, row.owner) else {"owner": owner, **_unrefused(row, now)}
        if not row.wanted:
            changes |= {"wanted": True, "status": Status.PENDING, "error": "", "failures": 0, "next_attempt_at": now}
        if changes:
            _write(row, **changes)


def _unrefused(row: Certificate, now: datetime) -> dict[str, Any]:
    if row.order_key is not None or not row.error:
        return {}
    status = row.status if row.chain else Status.PENDING
    return {"status": status, "error": "", "failures": 0, "next_attempt_at": now}


@transaction.atomic
def certificate_remove(names: Collection[str]) -> None:
    """Forget the certificates of these names and their keys; an order under way is given up. Idempotent.

    From the commit on nothing of them is served. The rows follow within seconds, when the app above has been informed.
    """
    for row in _locked(names):
        # The token's file is removed with the row.
        order = {**NO_ORDER, "challenge_token": row.challenge_token}
        nothing: dict[str, Any] = {"chain": "", "key": None, "not_before": None, "expires_at": None, "issued_by": ""}
        _write(row, wanted=False, status=Status.PENDING, error="", **order, **nothing)


@transaction.atomic
def certificate_renew(names: Collection[str]) -> None:
    """Order new certificates now. The present ones are served until the new ones are there.

    Raise RenewalInProgress if an order of one of the names is under way, and RateLimited if the limit of orders
    is reached, ours or the CA's; nothing has changed then. Names without a row are requested.
    """
    now = timezone.now()
    certificate_request(names)
    free = set(Certificate.objects.filter(LEASE.free(), order_key=None).values_list("pk", flat=True))
    for row in _locked(names):
        if row.pk not in free:
            raise RenewalInProgress
        if (allowed := max(limits.allowed_at(row.name, row.owner, now), _limited_until(row, now))) > now:
            seconds = int((allowed - now).total_seconds()) + 1
            raise RateLimited("The limit of orders for certificates is reached.", headers={"Retry-After": str(seconds)})
        _write(row, next_attempt_at=now)


def _limited_until(row: Certificate, now: datetime) -> datetime:
    until = row.limited_until
    return now if until is None or moment_has_come(until, now, LONGEST_CA_PAUSE) else until


def _locked(names: Collection[str]) -> list[Certificate]:
    return list(Certificate.objects.select_for_update().filter(name__in=set(names)).order_by("name"))


def _write(row: Certificate, **changes: Any) -> None:
    """Write columns and end the lease of a process that carries out a step: what it writes afterwards raises
    ClaimLost.
    """
    for name, value in changes.items():
        setattr(row, name, value)
    row.due_at, row.claim, row.lease_until = timezone.now(), "", None
    row.save(update_fields=[*changes, "due_at", "claim", "lease_until"])
