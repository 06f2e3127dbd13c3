"""The zones of a quota (specification, Quota zones), and what a change of what is used announces.

Thresholds are found in the transaction of the charge that passes them, each once until the quota is set or reset. A
quota with `quota_limit` 0 is passed whole by the first charge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from credits import hooks
from credits.models import Balance, OverdraftAction, Service
from namespaces.models import Namespace
from namespaces.selectors import not_suspended_by_quota
from namespaces.services import QuotaSuspension, quota_locks, quota_suspensions_set

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
    _announce(balance)
    if is_blocked(balance):
        # Also where it was announced before: a refund, or staff, may have lifted the suspension since.
        apply_block(balance)


def announce_charges(balances: Iterable[Balance], blocked_before: Iterable[Balance]) -> None:
    """The same for charges of many balances, of which some were in the hard block before. Two queries at most, one
    where each that is blocked was so before, beside what changes.
    """
    before = {balance.pk for balance in blocked_before}
    blocked = []
    for balance in balances:
        _announce(balance)
        if is_blocked(balance):
            blocked.append(balance)
    lifted = _not_suspended(balance.namespace_id for balance in blocked if balance.pk in before)
    apply_blocks([row for row in blocked if row.pk not in before or row.namespace_id in lifted])


def _announce(balance: Balance) -> None:
    for threshold in passed_thresholds(balance):
        balance.last_threshold_fired = threshold
        hooks.threshold_passed(balance, threshold)
    if is_blocked(balance) and not balance.depleted_fired:
        balance.depleted_fired = True
        hooks.quota_depleted(balance)


def _not_suspended(namespace_ids: Iterable[str]) -> set[str]:
    """Those that no quota suspends, as a refund, or staff, has lifted it since."""
    wanted = list(namespace_ids)
    return set(not_suspended_by_quota(wanted)) if wanted else set()


def apply_block(balance: Balance) -> None:
    """Suspend the namespace by its quotas, or lift that, as the zones say. The row of the balance is locked."""
    apply_blocks([balance])


def apply_blocks(balances: Sequence[Balance]) -> None:
    """The same for balances of many namespaces, one of each: two queries, and a fixed number of writes.

    The quota of workspaces suspends a namespace, and any other one whose action is to stop workspaces; else a quota
    refuses the requests of its own service. The namespace's lock comes before the other balances are read, so that of
    two that change at once the second sees the first.
    """
    if not balances:
        return
    by_namespace = {balance.namespace_id: [balance] for balance in balances}
    namespaces = quota_locks(by_namespace)
    if not namespaces:
        return
    own = [balance.pk for balance in balances]
    for other in Balance.objects.filter(namespace_id__in=list(by_namespace)).exclude(pk__in=own):
        by_namespace[other.namespace_id].append(other)
    quota_suspensions_set([_suspension(namespace, by_namespace[namespace.pk]) for namespace in namespaces])


def _suspension(namespace: Namespace, balances: Iterable[Balance]) -> QuotaSuspension:
    blocked = [each for each in balances if is_blocked(each)]
    stops = any(each.on_overdraft_action == OverdraftAction.STOP_WORKSPACES for each in blocked)
    return QuotaSuspension(namespace, suspended=any(map(suspends_namespace, blocked)), stops=stops)


def suspends_namespace(blocked: Balance) -> bool:
    """Whether a quota in the hard block suspends its namespace, and not only refuses what its service does."""
    return blocked.service == Service.SANDBOX or blocked.on_overdraft_action == OverdraftAction.STOP_WORKSPACES
