"""Events of quotas: a threshold was passed, or a quota is used up (wire contract, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from credits.amounts import as_number
from credits.models import Balance
from namespaces.models import Namespace
from webhooks.events import NewEvent


@dataclass(frozen=True, slots=True)
class QuotaFact:
    """Threshold that a charge passed, in percent of the limit; None if limit and overdraft are used up.

    `percent`: how much of the limit is used; None for a limit of 0.
    """

    balance: Balance
    threshold: float | None
    percent: float | None


def quota_events(facts: Sequence[QuotaFact], namespaces: Sequence[Namespace]) -> list[NewEvent]:
    """Return the events to publish, in order. There are none for namespaces that are deleted."""
    slugs = {row.pk: row.slug for row in namespaces if row.deleted_at is None}
    return [_event(fact, slugs[key]) for fact in facts if (key := fact.balance.namespace_id) in slugs]


def _event(fact: QuotaFact, slug: str) -> NewEvent:
    name = "credits.depleted" if fact.threshold is None else "namespace.quota.threshold"
    balance = fact.balance
    return NewEvent(balance.account_id, balance.namespace_id, slug, name, _data(fact, slug))


def _data(fact: QuotaFact, slug: str) -> dict[str, Any]:
    balance = fact.balance
    passed = {} if fact.threshold is None else {"threshold": _plain(fact.threshold)}
    return {
        "namespace": slug,
        "service": balance.service,
        **passed,
        "percent": fact.percent,
        "quota_used": as_number(balance.used),
        "quota_limit": as_number(balance.quota_limit or Decimal(0)),
        "overdraft": as_number(balance.overdraft),
    }


def _plain(number: float) -> int | float:
    """Return 80 rather than 80.0."""
    return int(number) if number.is_integer() else number
