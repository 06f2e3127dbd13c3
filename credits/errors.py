"""Errors of credits."""

from __future__ import annotations

from decimal import Decimal

from common.errors import QuotaExceeded
from credits.amounts import as_number
from credits.models import Balance


def quota_exceeded(balance: Balance, namespace_slug: str) -> QuotaExceeded:
    """The hard block (wire contract, section 7)."""
    return QuotaExceeded(
        f"The {balance.service} quota of the namespace {namespace_slug!r} is used up.",
        details={
            "namespace": namespace_slug,
            "service": balance.service,
            "quota_used": as_number(balance.used),
            "quota_limit": as_number(balance.quota_limit or Decimal(0)),
            "overdraft": as_number(balance.overdraft),
        },
    )
