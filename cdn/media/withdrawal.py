"""Links of a deactivated account's files: some are removed by the request of staff, the rest by the worker."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

from django.db import transaction

from accounts.models import Account
from accounts.services import account_lock
from cdn.delivery.links import links_remove
from cdn.media.notifications import withdrawal_request
from cdn.models import File

BATCH = 500
# One call does not keep a place of the worker for longer, nor a request of staff.
SECONDS = 30.0
SECONDS_IN_REQUEST = 1.0


def account_links_follow(account: Account) -> None:
    """The account was activated or deactivated (`accounts.hooks`), in whose transaction this is. After the commit no
    link of its files is left where it is inactive; those that are, as the process dies, `orphans_remove` removes. Links
    of an active one are made by the next requests.
    """
    if not account.is_active:
        withdraw = partial(account_links_withdraw, account.pk, seconds=SECONDS_IN_REQUEST)
        transaction.on_commit(withdraw, robust=True)


def account_links_withdraw(account_id: str, *, after: str = "", seconds: float = SECONDS) -> None:
    """Remove the links of an inactive account's files, by their ids; the worker goes on where they are more.

    None is made any more: `file_deliver` has seen the account inactive, or has made its link before the commit. Where
    the account is active again, or is gone, the rest stays. Raises OSError: the rest stays for `orphans_remove`.
    """
    end = time.monotonic() + seconds
    while last := _links_withdraw_some(account_id, after):
        after = last
        if time.monotonic() >= end:
            withdrawal_request(account_id, after)
            break


def _links_withdraw_some(account_id: str, after: str) -> str:
    """The last file's id; empty where there are no more. With the account locked, so that it stays inactive."""
    with transaction.atomic():
        with suppress(Account.DoesNotExist):
            if account_lock(Account(pk=account_id)).is_active:
                return ""
        found = File.objects.filter(account_id=account_id, delivered=True, pk__gt=after).order_by("pk")
        ids = list(found.values_list("pk", flat=True)[:BATCH])
        for file_id in ids:
            links_remove(file_id)
    return ids[-1] if ids else ""
