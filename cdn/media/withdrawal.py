"""Links of a deactivated account's files: some are removed by the request of staff, the rest by the worker."""

from __future__ import annotations

import logging
import time

from django.db import Error

from accounts.models import Account
from cdn.delivery.links import links_remove
from cdn.media.notifications import withdrawal_request
from cdn.models import File
from common.commits import call_after_commit

logger = logging.getLogger(__name__)

BATCH = 100
# One call does not keep a place of the worker for longer, nor a request of staff.
SECONDS = 30.0
SECONDS_IN_REQUEST = 1.0
# Until the worker tries again where the database did not answer.
RETRY_SECONDS = 10.0


def account_links_follow(account: Account) -> None:
    """The account was activated or deactivated (`accounts.hooks`), in whose transaction this is. After the commit no
    link of its files is left where it is inactive; those that are, as the process dies, `orphans_remove` removes. Links
    of an active one are made by the next requests.
    """
    if not account.is_active:
        call_after_commit(account_links_withdraw, account.pk, seconds=SECONDS_IN_REQUEST)


def account_links_withdraw(account_id: str, *, after: str = "", seconds: float = SECONDS) -> None:
    """Remove the links of an inactive account's files, by their ids; the worker goes on where they are more.

    Called outside of any transaction: nothing is written, and on SQLite a transaction excludes all writers. None is
    needed, as no link is made any more: `file_deliver` has seen the account inactive, or has made its link and said so
    in the row before the commit. Where the account is active again, or is gone, the rest stays; a link that is removed
    at that moment is made again by the file's next request. Links that cannot be removed stay for `orphans_remove`.
    Raises django.db.Error: the worker goes on from there a little later.
    """
    end = time.monotonic() + seconds
    try:
        while found := _files_next(account_id, after):
            for file_id in found:
                _links_remove(file_id)
            after = found[-1]
            if time.monotonic() >= end:
                withdrawal_request(account_id, after)
                break
    except Error:
        withdrawal_request(account_id, after, delay=RETRY_SECONDS)
        raise


def _files_next(account_id: str, after: str) -> list[str]:
    """The ids of the next files that may have links; empty where there are no more, or the account is active."""
    if Account.objects.filter(pk=account_id, is_active=True).exists():
        return []
    found = File.objects.filter(account_id=account_id, delivered=True, pk__gt=after).order_by("pk")
    return list(found.values_list("pk", flat=True)[:BATCH])


def _links_remove(file_id: str) -> None:
    try:
        links_remove(file_id)
    except OSError as exc:
        logger.warning("the links of %s, whose account is inactive, stay for now: %s", file_id, exc)
