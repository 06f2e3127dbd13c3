"""The first refusal for want of room is exhaustion, as a charge that passes the quota is (wire contract, section 7).

A refusal rolls back what its request has written, so that it is announced by a transaction of its own, after that.
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
    """Announce a refusal that passes through, outside of the transaction that it ends: around `transaction.atomic`.

    A caller with a transaction of its own is wrapped itself: what is announced within that is rolled back with it.
    If the process dies before that, the next refusal is announced.
    """
    try:
        yield
    except CreditsUsedUp as exc:
        if not exc.balance.depleted_fired:
            _announce(exc)
        raise


@transaction.atomic
def _announce(refused: CreditsUsedUp) -> None:
    """Once until re-armed. Not where there is room again: the quota was raised or reset since.

    A default quota that the refusal has applied was rolled back with it.
    """
    found = refused.balance
    balance = lock_balance(Namespace(pk=found.namespace_id, account_id=found.account_id), Service(found.service))
    apply_default(balance)
    wanted = refused.wanted
    refuses = zones.is_blocked(balance) if wanted is None else not zones.has_room(balance, wanted)
    if refuses and zones.announce_refusal(balance):
        balance.save(update_fields=["depleted_fired"])
