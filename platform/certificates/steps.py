"""One step of one certificate: what is due of its order, its expiry, its announcement, its removal."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from certificates import hooks, tokens
from certificates.leases import LEASE, claim_lease, release_lease
from certificates.models import Certificate, Status
from certificates.orders import order_advance
from common.work.leases import ClaimLost, owned_rows


def certificate_step(key: str) -> bool:
    """Carry out what is due of a row, if it can be claimed; return whether it could.

    If the process dies within it, or anything but CaError is raised, the row is due again when its lease is over.
    """
    row = claim_lease(key)
    if row is None:
        return False
    try:
        if row.wanted:
            _step(row)
        else:
            _remove(row)
    except ClaimLost:
        return True
    return True


def _step(row: Certificate) -> None:
    now = timezone.now()
    _follow_time(row, now)
    # Before the CA is asked: a new certificate is announced by the step that stored it, or by the next one.
    _announce(row)
    if row.next_attempt_at <= now:
        order_advance(row)
    _announce(row)
    release_lease(row)


def _follow_time(row: Certificate, now: datetime) -> None:
    """Let a certificate expire; if the clock was wrong then, the certificate counts again once the clock is set. An
    order that would begin in a time to come has begun now.
    """
    if row.order_began_at is not None and row.order_began_at > now:
        LEASE.write_row(row, order_began_at=now)
    if row.expires_at is None:
        return
    status = Status.ACTIVE if row.expires_at > now else Status.EXPIRED
    if row.status != status:
        LEASE.write_row(row, status=status)


def _announce(row: Certificate) -> None:
    """Tell the app above whether there is a certificate; stored once it has returned."""
    is_there = row.wanted and row.status == Status.ACTIVE
    if is_there != row.announced:
        hooks.certificate_changed(row.name, is_there)
        LEASE.write_row(row, announced=is_there)


def _remove(row: Certificate) -> None:
    """Remove the row of a name that is given up; its keys are gone already (services.certificate_remove)."""
    hooks.certificate_changed(row.name, False)
    tokens.remove_token(row.challenge_token)
    owned_rows(row).filter(wanted=False).delete()
