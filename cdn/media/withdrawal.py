"""Links of a deactivated account's files: some are removed by the request of staff, the rest by the worker.

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
# One call does not keep a place of the worker for longer, nor a request of staff.
SECONDS = 30.0
SECONDS_IN_REQUEST = 1.0
# Who removes links says so after each batch; of one that does not for so long, another process goes on.
DUE_AFTER = timedelta(seconds=20)
CONTINUED_AT_ONCE = 50


def follow_account_links(account: Account) -> None:
    """The account was activated or deactivated (`accounts.hooks`), in whose transaction this is. After the commit no
    link of its files is left where it is inactive; those that are, as the process dies, the worker removes. Links of an
    active one are made by the next requests.
    """
    Withdrawal.objects.filter(account=account).delete()
    if not account.is_active:
        Withdrawal.objects.create(account=account, due_at=timezone.now() + DUE_AFTER)
        call_after_commit(withdraw_account_links, account.pk, seconds=SECONDS_IN_REQUEST)


def withdraw_account_links(account_id: str, *, seconds: float = SECONDS) -> None:
    """Remove the links of an inactive account's files, by their ids; the worker goes on where they are more.

    Called outside of any transaction: files are removed while no row is locked, and nothing but the row of the
    withdrawal is written, once for each batch. No lock is needed, as no link is made any more: `file_deliver` has seen
    the account inactive, or has made its link and said so in the row before the commit. Where the account is active
    again, or is gone, the rest stays; a link that is removed at that moment is made again by the file's next request.
    Links that cannot be removed stay for `orphans_remove`. Raises django.db.Error: the worker goes on from there a
    little later.
    """
    end = time.monotonic() + seconds
    while _batch_withdraw(account_id):
        if time.monotonic() >= end:
            request_withdrawal(account_id)
            break


def _batch_withdraw(account_id: str) -> bool:
    """False where nothing is left. Of several processes at once each may remove the same links; one records it."""
    withdrawal = Withdrawal.objects.filter(account_id=account_id).first()
    if withdrawal is None:
        return False
    files = File.objects.filter(account_id=account_id, delivered=True, pk__gt=withdrawal.after).order_by("pk")
    found = list(files.values_list("pk", flat=True)[:BATCH])
    for file_id in found:
        _links_remove(file_id)
    # That of a later deactivation has another key: its links are removed from the first on.
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
        logger.warning("the links of %s, whose account is inactive, stay for now: %s", file_id, exc)


def withdrawals_continue() -> int:
    """Notify the worker of what no process goes on with. Returns of how many accounts."""
    due = Withdrawal.objects.filter(has_come("due_at", 2 * DUE_AFTER)).order_by("due_at")
    found = list(due.values_list("account_id", flat=True)[:CONTINUED_AT_ONCE])
    for account_id in found:
        request_withdrawal(account_id)
    return len(found)
