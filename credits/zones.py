"""The zones of a quota (specification, Quota zones), and what a change of what is used announces.

Thresholds are found in the transaction of the charge that passes them, each once until the quota is set or reset. A
quota with `quota_limit` 0 is passed whole by the first charge.
"""

from __future__ import annotations

from decimal import Decimal

from credits import hooks
from credits.models import Balance, OverdraftAction, Service
from namespaces.services import quota_lock, quota_suspension_set

HUNDRED = Decimal(100)


def is_blocked(balance: Balance) -> bool:
    """The hard block: more is used than the limit and the overdraft."""
    return balance.quota_limit is not None and balance.used > balance.quota_limit + balance.overdraft


def in_overdraft(balance: Balance) -> bool:
    """More is used than the limit, and nothing is refused yet."""
    return balance.quota_limit is not None and balance.used > balance.quota_limit and not is_blocked(balance)


def percent_used(balance: Balance) -> float | None:
    """Of the limit; None without one, and for a limit of 0."""
    return float(balance.used * HUNDRED / balance.quota_limit) if balance.quota_limit else None


def passed_thresholds(balance: Balance) -> list[float]:
    """Those that are passed and were not announced, in order."""
    if balance.quota_limit is None:
        return []
    last = balance.last_threshold_fired
    due = [float(value) for value in balance.notification_thresholds if last is None or value > last]
    return sorted(value for value in due if _is_passed(balance, value))


def _is_passed(balance: Balance, threshold: float) -> bool:
    limit = balance.quota_limit or Decimal(0)
    return balance.used > 0 and balance.used * HUNDRED >= limit * Decimal(str(threshold))


def announce_charge(balance: Balance) -> None:
    """After a charge, with the balance's row locked: thresholds, exhaustion, the hard block.

    Changes the instance, which the caller saves in the same transaction.
    """
    for threshold in passed_thresholds(balance):
        balance.last_threshold_fired = threshold
        hooks.threshold_passed(balance, threshold)
    if is_blocked(balance):
        if not balance.depleted_fired:
            balance.depleted_fired = True
            hooks.quota_depleted(balance)
        # Also where it was announced before: a refund, or staff, may have lifted the suspension since.
        apply_block(balance)


def apply_block(balance: Balance) -> None:
    """Suspend the namespace by its quotas, or lift that, as the zones say. The row of the balance is locked.

    The quota of workspaces suspends a namespace, and any other one whose action is to stop workspaces; else a quota
    refuses the requests of its own service. The namespace's lock comes before the other balances are read, so that of
    two that change at once the second sees the first.
    """
    namespace = quota_lock(balance.namespace_id)
    if namespace is None:
        return
    others = Balance.objects.filter(namespace_id=balance.namespace_id).exclude(pk=balance.pk)
    blocked = [each for each in (balance, *others) if is_blocked(each)]
    stops = any(each.on_overdraft_action == OverdraftAction.STOP_WORKSPACES for each in blocked)
    quota_suspension_set(namespace, suspended=any(map(suspends_namespace, blocked)), stops=stops)


def suspends_namespace(blocked: Balance) -> bool:
    """Whether a quota in the hard block suspends its namespace, and not only refuses what its service does."""
    return blocked.service == Service.SANDBOX or blocked.on_overdraft_action == OverdraftAction.STOP_WORKSPACES
