"""Errors of credits."""

from __future__ import annotations

from decimal import Decimal

from common.errors import DomainError, QuotaExceeded
from credits.amounts import as_number
from credits.models import Balance

# The owner may use any names for services, so their number needs a limit.
MAX_SERVICES = 100


class ServiceLimitExceeded(DomainError):
    """Error of a namespace with quotas, or an account with defaults, for the maximal number of services.

    Details: `current` and `max`.
    """

    code = "service_limit_exceeded"
    status = 409
    message = f"At most {MAX_SERVICES} services can have quotas."


class CreditsUsedUp(QuotaExceeded):
    """Error of a quota without room.

    `balance`: the balance at the time of the refusal. `wanted`: the amount that should have been held; None if the hard
    block refused.
    """

    def __init__(self, balance: Balance, wanted: Decimal | None, message: str, details: dict[str, object]) -> None:
        super().__init__(message, details=details)
        self.balance = balance
        self.wanted = wanted


def quota_exceeded(balance: Balance, namespace_slug: str, wanted: Decimal | None = None) -> CreditsUsedUp:
    """Return the error of the hard block, or of a hold without room (wire contract, section 7)."""
    message = f"The {balance.service} quota of the namespace {namespace_slug!r} is used up."
    if balance.held:
        message += f" {balance.held.normalize():f} credits are held for work that has not ended."
    details = {
        "namespace": namespace_slug,
        "service": balance.service,
        "quota_used": as_number(balance.used),
        "held": as_number(balance.held),
        "quota_limit": as_number(balance.quota_limit or Decimal(0)),
        "overdraft": as_number(balance.overdraft),
    }
    return CreditsUsedUp(balance, wanted, message, details)
