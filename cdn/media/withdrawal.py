"""Removal of the links of a deactivated account's files: staff's request removes some, the worker the rest.

The row (`Withdrawal`) says that links are to be removed, and from which file on; tasks are wake-ups.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from django.utils import timezone

from accounts.models import Account
from cdn.delivery.links import remove_links
from cdn.media.notifications import request_withdrawal
from cdn.models import File, Withdrawal
from common.commits import call_after_commit
from common.work.clock import has_come

logger = logging.getLogger(__name__)

BATCH = 100
# Longest time of one call in the worker, and in a request of staff.
SECONDS = 30.0
SECONDS_IN_REQUEST = 1.0
# A process that removes links writes it after each batch. If it does not for so long, another process goes on.
DUE_AFTER = timedelta(seconds=20)
CONTINUED_AT_ONCE = 50


def follow_account_links(account: Account) -> None:
    """Remove the links of an account's files if it was deactivated (`accounts.hooks`).

    The row is written in the transaction of the account. After the commit no link of an inactive account is to be left;
    the worker removes the rest if the process dies. If the account is active again, the next requests make the links.
    """
    Withdrawal.objects.filter(account=account).delete()
    if not account.is_active:
        Withdrawal.objects.create(account=account, due_at=timezone.now() + DUE_AFTER)
        call_after_commit(withdraw_account_links, account.pk, seconds=SECONDS_IN_REQUEST)


def withdraw_account_links(account_id: str, *, seconds: float = SECONDS) -> None:
    """Remove the links of an inactive account's files, by their ids; the worker goes on if there are more.

    Call this outside of any transaction: files are removed while no row is locked, and only the row of the withdrawal
    is written, once for each batch. No lock is needed, because no link is made any more: `file_deliver` has seen the
    account inactive, or has made its link and said so in the row before the commit. If the account is active again, or
    is gone, the rest stays. A link that is removed at that moment is made again by the file's next request. Links that
    cannot be removed stay for `orphans_remove`. Raise django.db.Error: the worker goes on from there a little later.
    """
    end = time.monotonic() + seconds
    while _batch_withdraw(account_id):
        if time.monotonic() >= end:
            request_withdrawal(account_id)
            break


def _batch_withdraw(account_id: str) -> bool:
    """Remove the links of one batch; return False if nothing is left.

    Several processes at once may remove the same links; one records it.
    """
    withdrawal = Withdrawal.objects.filter(account_id=account_id).first()
    if withdrawal is None:
        return False
    files = File.objects.filter(account_id=account_id, delivered=True, pk__gt=withdrawal.after).order_by("pk")
    found = list(files.values_list("pk", flat=True)[:BATCH])
    for file_id in found:
        _links_remove(file_id)
    # A later deactivation has a row with another key: its links are removed from the first on.
    same = Withdrawal.objects.filter(pk=withdrawal.pk, after=withdrawal.after)
    if found:
        same.update(after=found[-1], due_at=timezone.now() + DUE_AFTER)
    else:
        same.delete()
    return True


def _links_remove(file_id: str) -> None:
    try:
        remove_links(file_id)
    except OSError as exc:
        logger.warning("the links of %s, whose account is inactive, could not be removed yet: %s", file_id, exc)


def withdrawals_continue() -> int:
    """Notify the worker of withdrawals that no process goes on with. Return for how many accounts."""
    due = Withdrawal.objects.filter(has_come("due_at", 2 * DUE_AFTER)).order_by("due_at")
    found = list(due.values_list("account_id", flat=True)[:CONTINUED_AT_ONCE])
    for account_id in found:
        request_withdrawal(account_id)
    return len(found)
