"""Checks of requests that consume credits (wire contract, sections 1 and 7): the hard block, and the overdraft's
warning.
"""

from __future__ import annotations

from decimal import Decimal

from common.errors import QuotaExceeded
from common.response_headers import add_response_header
from credits.errors import quota_exceeded
from credits.models import Balance
from credits.selectors import balance_for
from credits.zones import in_overdraft, is_blocked, suspends_namespace
from namespaces.models import Namespace

HEADER = "X-Credit-Warning"


def require_credits(namespace: Namespace, service: str) -> None:
    """Raise QuotaExceeded in the hard block. In the overdraft, add a warning header to the response.

    One query. Spending ahead is refused by the hold itself (`ledger.credits_hold`).
    """
    balance = balance_for(namespace.pk, service)
    if balance is None:
        return
    if is_blocked(balance):
        raise quota_exceeded(balance, namespace.slug)
    if in_overdraft(balance):
        add_response_header(HEADER, _warning(balance))


def suspension_error(namespace: Namespace) -> QuotaExceeded | None:
    """Return the error of a namespace that a quota has suspended (`namespaces.hooks`). One query."""
    blocked = [row for row in Balance.objects.filter(namespace_id=namespace.pk).order_by("service") if is_blocked(row)]
    suspending = [row for row in blocked if suspends_namespace(row)]
    return quota_exceeded(suspending[0], namespace.slug) if suspending else None


def _warning(balance: Balance) -> str:
    limit = balance.quota_limit or Decimal(0)
    return f"overdraft; service={balance.service}; used={_plain(balance.used)}; limit={_plain(limit)}"


def _plain(amount: Decimal) -> str:
    """Return an amount without an exponent and without zeros at its end."""
    return f"{amount.normalize():f}"
