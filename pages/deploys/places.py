"""Order of deploys, and the limit of how many are carried out at once.

A place is for a deploy that makes progress. A deploy whose guest sends slowly, or that waits for its next attempt,
costs a thread and a connection, and leaves its place to others. A guest that sends a byte a second holds no place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Min, Q, QuerySet
from django.db.models.functions import Now

from common.work.shares import most_of_account
from pages.models import PageDeploy
from pages.states import DeployState

# Steps in which a deploy has no place.
SLOW_EXPORT = "slow_export"
RETRY_PAUSE = "retry_pause"
WITHOUT_PLACE = (SLOW_EXPORT, RETRY_PAUSE)
# For each place this many deploys may be without a place; further ones count again. The worker's threads are made for
# that (supervise/processes.py).
WITHOUT_PLACE_FOR_EACH = 3


def available_deploys() -> QuerySet[PageDeploy]:
    """Return the deploys that may be claimed.

    A deploy that has made its release is available even after its deadline: it only has to be made live.
    """
    queued = PageDeploy.objects.filter(state=DeployState.QUEUED)
    return queued.filter(Q(deadline_at__gt=Now()) | Q(release__isnull=False))


@dataclass(frozen=True, slots=True)
class _Running:
    """Counts of running deploys by account: all of them, and those that have a place."""

    of_account: Counter[str]
    with_place: Counter[str]

    @property
    def is_place_left(self) -> bool:
        places = settings.ENV.pages_threads
        running = self.of_account.total()
        apart = min(running - self.with_place.total(), places * WITHOUT_PLACE_FOR_EACH)
        return running - apart < places

    def has_place(self, account_id: str) -> bool:
        """Return whether an account may have a place. Deploys without a place count only against their own account."""
        of_others = self.with_place.total() - self.with_place[account_id]
        return self.of_account[account_id] < most_of_account(of_others, settings.ENV.pages_threads)


def deploys_in_turn() -> Iterator[str]:
    """Yield ids of deploys to claim, until one could be claimed: the oldest of the account with the fewest running.

    A deploy therefore waits for at most one deploy of every other account, however many they have queued.
    """
    running = _running()
    if not running.is_place_left:
        return
    first = available_deploys().values("page__account_id").annotate(first=Min("created_at"))
    accounts = [(running.of_account[row["page__account_id"]], row["first"], row["page__account_id"]) for row in first]
    for _, _, account_id in sorted(accounts):
        if running.has_place(account_id):
            oldest = available_deploys().filter(page__account_id=account_id).order_by("created_at", "pk")
            yield from oldest.values_list("pk", flat=True)[: settings.ENV.pages_threads]


def has_place(account_id: str) -> bool:
    """Return whether a deploy of the account has a place. Call it under the account's lock.

    Two accounts at once may both see the last place.
    """
    running = _running()
    return running.is_place_left and running.has_place(account_id)


def _running() -> _Running:
    rows = PageDeploy.objects.filter(state=DeployState.RUNNING).values_list("page__account_id", "step")
    found = list(rows)
    with_place = Counter(account_id for account_id, step in found if step not in WITHOUT_PLACE)
    return _Running(Counter(account_id for account_id, _ in found), with_place)
