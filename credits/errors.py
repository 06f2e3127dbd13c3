"""Errors of credits."""

from __future__ import annotations

from decimal import Decimal

from common.errors import DomainError, QuotaExceeded
from credits.amounts import as_number
from credits.models import Balance

# Of names that are not the platform's own there could be any number.
MAX_SERVICES = 100


class ServiceLimitExceeded(DomainError):
    """A namespace has quotas, or an account defaults, of as many services as may be. Details: `current` and `max`."""

    code = "service_limit_exceeded"
    status = 409
    message = f"There are quotas of at most {MAX_SERVICES} services."


class CreditsUsedUp(QuotaExceeded):
    """A quota has no room. `balance`: as it was when this was refused; `wanted`: what was to be held, None where the
    hard block refused.
    """

    def __init__(self, balance: Balance, wanted: Decimal | None, message: str, details: dict[str, object]) -> None:
        super().__init__(message, details=details)
        self.balance = balance
        self.wanted = wanted


def quota_exceeded(balance: Balance, namespace_slug: str, wanted: Decimal | None = None) -> CreditsUsedUp:
    """The hard block, or a hold without room (wire contract, section 7)."""
    message = f"The {balance.service} quota of the namespace {namespace_slug!r} is used up."
    if balance.held:
        message += f" Of what it allows, {balance.held.normalize():f} credits are held for what is under way."
    details = {
        "namespace": namespace_slug,
        "service": balance.service,
        "quota_used": as_number(balance.used),
        "held": as_number(balance.held),
        "quota_limit": as_number(balance.quota_limit or Decimal(0)),
        "overdraft": as_number(balance.overdraft),
    }
    return CreditsUsedUp(balance, wanted, message, details)
