"""Which deploy is next, and how many are carried out at once.

A place is for a deploy that gets on. One whose guest sends slowly, or that waits for its next attempt, costs a thread
and a connection, and leaves its place to others: guests that send a byte a second hold none.
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
    return queued.filter(Q(deadline_at__gt=Now()) | Q(release__isnull=False))


@dataclass(frozen=True, slots=True)
class _Running:
    """Running deploys by account: all of them, and those that have a place."""

    of_account: Counter[str]
    with_place: Counter[str]

    @property
    def is_place_left(self) -> bool:
        places = settings.ENV.pages_threads
        running = self.of_account.total()
        apart = min(running - self.with_place.total(), places * WITHOUT_PLACE_FOR_EACH)
        return running - apart < places

    def has_place(self, account_id: str) -> bool:
        """Its deploys without a place count against the account, and not against others."""
        of_others = self.with_place.total() - self.with_place[account_id]
        return self.of_account[account_id] < most_of_account(of_others, settings.ENV.pages_threads)


def deploys_in_turn() -> Iterator[str]:
    """Ids of deploys to claim, until one could be: of the account that has the fewest running, the oldest first.

    So a deploy waits for one of every other account at most, however many they have queued.
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
    """Call it under the account's lock. Of two accounts at once both may see the last one."""
    running = _running()
    return running.is_place_left and running.has_place(account_id)


def _running() -> _Running:
    rows = PageDeploy.objects.filter(state=DeployState.RUNNING).values_list("page__account_id", "step")
    found = list(rows)
    with_place = Counter(account_id for account_id, step in found if step not in WITHOUT_PLACE)
    return _Running(Counter(account_id for account_id, _ in found), with_place)
