"""Charging what waited for room in its balance (`metered_charges`): a reset or a refund has made some since.

The rows are in the admin until then, and `ledger_check` counts them as charged.
"""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from credits.amounts import MAX_CREDITS, stored_amount
from credits.metered_charges import MeteredCharge, charges_write
from credits.models import Balance, Service, WaitingCharge

BATCH = 5000


def waiting_charges_retry() -> int:
    """Charge what waits, in balances that have room now, at most some thousand charges of each. Returns how many.

    One query where nothing waits. The entries and the deletion of what waited commit together.
    """
    waiting = WaitingCharge.objects.order_by().values_list("balance_id", flat=True).distinct()
    return sum(_charge_waiting(balance_id) for balance_id in sorted(waiting))


@transaction.atomic
def _charge_waiting(balance_id: int) -> int:
    balance = Balance.objects.select_for_update().get(pk=balance_id)
    room = stored_amount(MAX_CREDITS) - stored_amount(balance.used)
    fitting: list[WaitingCharge] = []
    for row in WaitingCharge.objects.filter(balance=balance)[:BATCH]:
        if (amount := stored_amount(row.amount)) <= room:
            room -= amount
            fitting.append(row)
    owner = balance.account_id, balance.namespace_id
    charges = [MeteredCharge(*owner, row.workspace_id, stored_amount(row.amount)) for row in fitting]
    charges_write(charges, Service(balance.service), timezone.now())
    WaitingCharge.objects.filter(pk__in=[row.pk for row in fitting]).delete()
    return len(fitting)
