"""Zones of a quota (specification, Quota zones), and the announcements that a charge, a refund or a refusal causes.

Thresholds are found in the transaction of the charge that passes them. Each is announced once until the quota is set or
reset. A quota with `quota_limit` 0 is passed whole by the first charge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal

from credits.models import Balance, OverdraftAction, Service
from credits.quota_events import QuotaFact, quota_events
from namespaces.models import Namespace
from namespaces.quota_suspension import QuotaState, lock_quotas, set_quota_states
from namespaces.selectors import not_suspended_by_quota
from namespaces.status_events import require_few_events
from webhooks.events import NewEvent, publish_events

HUNDRED = Decimal(100)


def is_blocked(balance: Balance) -> bool:
    """Return whether a balance is in the hard block: more is used than the limit and the overdraft."""
    return balance.quota_limit is not None and balance.used > balance.quota_limit + balance.overdraft


def has_room(balance: Balance, wanted: Decimal) -> bool:
    """Return whether so much more may be held."""
    limit = balance.quota_limit
    return limit is None or balance.used + balance.held + wanted <= limit + balance.overdraft


def in_overdraft(balance: Balance) -> bool:
    """Return whether more is used than the limit, and nothing is refused yet."""
    return balance.quota_limit is not None and balance.used > balance.quota_limit and not is_blocked(balance)


def percent_used(balance: Balance) -> float | None:
    """Return the used percentage of the limit; None without a limit, and for a limit of 0."""
    return float(balance.used * HUNDRED / balance.quota_limit) if balance.quota_limit else None


def passed_thresholds(balance: Balance) -> list[float]:
    """Return the thresholds that are passed and were not announced, in order."""
    if balance.quota_limit is None:
        return []
    last = balance.last_threshold_fired
    due = [float(value) for value in balance.notification_thresholds if last is None or value > last]
    return sorted(value for value in due if _is_passed(balance, value))


def _is_passed(balance: Balance, threshold: float) -> bool:
    limit = balance.quota_limit or Decimal(0)
    used: Decimal = balance.used
    return used > 0 and used * HUNDRED >= limit * Decimal(str(threshold))


def announce_charges(balances: Sequence[Balance], *, blocked_before: Sequence[Balance] = ()) -> None:
    """Announce thresholds, exhaustion and the hard block after charges, with the balances' rows locked.

    Changes the instances, which the caller saves in the same transaction. The number of statements is fixed. It is one
    query if nothing is to be announced and all blocked balances were blocked before the charges (`blocked_before`).
    """
    facts = [fact for balance in balances for fact in _passed_now(balance)]
    before = {balance.pk for balance in blocked_before}
    blocked = [balance for balance in balances if is_blocked(balance)]
    # Staff may have lifted the suspension since.
    lifted = not_suspended_by_quota({balance.namespace_id for balance in blocked if balance.pk in before})
    changing = [each for each in blocked if each.pk not in before or each.namespace_id in lifted]
    namespaces = lock_quotas({balance.namespace_id for balance in (*changing, *(fact.balance for fact in facts))})
    publish_events([*quota_events(facts, namespaces), *_blocks_set(changing, namespaces)])


def _passed_now(balance: Balance) -> Iterator[QuotaFact]:
    """Yield what is to be announced, in order. It is noted on the instance, so that it is announced once."""
    for threshold in passed_thresholds(balance):
        balance.last_threshold_fired = threshold
        yield QuotaFact(balance, threshold, percent_used(balance))
    if is_blocked(balance) and not balance.depleted_fired:
        balance.depleted_fired = True
        yield QuotaFact(balance, None, percent_used(balance))


def announce_refusal(balance: Balance) -> bool:
    """Announce exhaustion once, after a refusal for want of room, with the balance's row locked.

    Changes the instance, which the caller saves in the same transaction. Return False if it was announced before.
    """
    if balance.depleted_fired:
        return False
    balance.depleted_fired = True
    fact = QuotaFact(balance, None, percent_used(balance))
    publish_events(quota_events([fact], lock_quotas({balance.namespace_id})))
    return True


def apply_blocks(balances: Sequence[Balance], *, by_request: bool = False) -> None:
    """Suspend namespaces by their quotas, or lift that, as the zones say. The rows of the balances are locked.

    `by_request`: raise RateLimited if requests of the account have announced very many changes just now.
    """
    events = _blocks_set(balances, lock_quotas({balance.namespace_id for balance in balances}))
    if by_request and events:
        require_few_events(events[0].account_id)
    publish_events(events)


def _blocks_set(balances: Sequence[Balance], namespaces: Sequence[Namespace]) -> list[NewEvent]:
    """Write the suspensions of locked namespaces, and return the events to publish.

    The quota of workspaces suspends a namespace. So does any other quota whose action is to stop workspaces. All other
    quotas refuse only the requests of their own service. The namespaces' locks come before the other balances are read:
    if two change at once, the second sees the first.
    """
    concerned = {balance.namespace_id for balance in balances}
    rows = [row for row in namespaces if row.pk in concerned]
    if not rows:
        return []
    others = Balance.objects.filter(namespace_id__in=[row.pk for row in rows])
    blocked: dict[str, list[Balance]] = defaultdict(list)
    for each in (*balances, *others.exclude(pk__in=[balance.pk for balance in balances])):
        if is_blocked(each):
            blocked[each.namespace_id].append(each)
    return set_quota_states(_quota_state(row, blocked[row.pk]) for row in rows)


def _quota_state(namespace: Namespace, blocked: Sequence[Balance]) -> QuotaState:
    stops = any(each.on_overdraft_action == OverdraftAction.STOP_WORKSPACES for each in blocked)
    return QuotaState(namespace, suspended=any(map(suspends_namespace, blocked)), stops=stops)


def suspends_namespace(blocked: Balance) -> bool:
    """Return whether a quota in the hard block suspends its namespace, not only the requests of its service."""
    return blocked.service == Service.SANDBOX or blocked.on_overdraft_action == OverdraftAction.STOP_WORKSPACES
