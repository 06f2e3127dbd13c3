"""Which deploy is next, and how many are carried out at once.

A place is for a deploy that gets on. One whose guest sends slowly, or that waits for its next attempt, costs a thread
and a connection, and leaves its place to others: guests that send a byte a second hold none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from django.conf import settings
from django.db.models import Min, Q, QuerySet

from pages.deploys.times import steady_now
from pages.models import PageDeploy
from pages.states import DeployState

# Steps without a place.
SLOW_EXPORT = "slow_export"
RETRY_PAUSE = "retry_pause"
WITHOUT_PLACE = (SLOW_EXPORT, RETRY_PAUSE)
# As many deploys without a place for each place; those above them count again. The worker's threads are made for that
# (supervise/processes.py).
WITHOUT_PLACE_FOR_EACH = 3


def available_deploys() -> QuerySet[PageDeploy]:
    """Those that may be claimed. One whose release is made also after its deadline: it only has to be made live."""
    queued = PageDeploy.objects.filter(state=DeployState.QUEUED)
    return queued.filter(Q(deadline_at__gt=steady_now()) | Q(release__isnull=False))


def deploys_in_turn() -> Iterator[str]:
    """Ids of deploys to claim, until one could be: of the account that has the fewest running, the oldest first.

    So a deploy waits for one of every other account at most, however many they have queued.
    """
    running = _running_accounts()
    if not _is_place_left():
        return
    first = available_deploys().values("page__account_id").annotate(first=Min("created_at"))
    accounts = [(running[row["page__account_id"]], row["first"], row["page__account_id"]) for row in first]
    for count, _, account_id in sorted(accounts):
        if count < account_places():
            oldest = available_deploys().filter(page__account_id=account_id).order_by("created_at", "pk")
            yield from oldest.values_list("pk", flat=True)[: settings.ENV.pages_threads]


def has_place(account_id: str) -> bool:
    """Call it under the account's lock. Of two accounts at once both may see the last one."""
    return _is_place_left() and _running_accounts()[account_id] < account_places()


def account_places() -> int:
    """An account has half of the places; deploys without a place count here, too."""
    return max(1, settings.ENV.pages_threads // 2)


def _is_place_left() -> bool:
    places = settings.ENV.pages_threads
    running = PageDeploy.objects.filter(state=DeployState.RUNNING)
    apart = min(running.filter(step__in=WITHOUT_PLACE).count(), places * WITHOUT_PLACE_FOR_EACH)
    return running.count() - apart < places


def _running_accounts() -> Counter[str]:
    running = PageDeploy.objects.filter(state=DeployState.RUNNING)
    return Counter(running.values_list("page__account_id", flat=True))
