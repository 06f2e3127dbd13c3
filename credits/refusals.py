"""Announcement of refusals (wire contract, section 7).

The first refusal for want of room announces that the quota is used up, as a charge that passes the quota does. A
refusal rolls back what its request has written, so a transaction of its own announces it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from credits import zones
from credits.entries import apply_default, lock_balance
from credits.errors import CreditsUsedUp
from credits.models import Service
from namespaces.models import Namespace


@contextmanager
def refusals_announced() -> Iterator[None]:
    """Announce a refusal that passes through, outside of the transaction that it ends: put this around
    `transaction.atomic`.

    If the caller has a transaction itself, this goes around that one: an announcement inside is rolled back with it. If
    the process dies before the announcement, the next refusal is announced.
    """
    try:
        yield
    except CreditsUsedUp as exc:
        if not exc.balance.depleted_fired:
            _announce(exc)
        raise


@transaction.atomic
def _announce(refused: CreditsUsedUp) -> None:
    """Announce a refusal, once until the quota is re-armed.

    Nothing is announced if there is room again because the quota was raised or reset since. A default quota that the
    refusal has applied was rolled back with it.
    """
    found = refused.balance
    balance = lock_balance(Namespace(pk=found.namespace_id, account_id=found.account_id), Service(found.service))
    apply_default(balance)
    wanted = refused.wanted
    refuses = zones.is_blocked(balance) if wanted is None else not zones.has_room(balance, wanted)
    if refuses and zones.announce_refusal(balance):
        balance.save(update_fields=["depleted_fired"])
