"""`Retry-After` of providers: kept for the account whose messages they refused, also over restarts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError
from django.utils import timezone

from common.work.clock import has_come, moment_has_come
from notifications.models import ProviderPause

LONGEST = timedelta(hours=1)

# By account and provider.
Pauses = dict[tuple[str, str], datetime]


def read_pauses(accounts: Iterable[str]) -> Pauses:
    """Return the pauses of these accounts that are not over."""
    rows = ProviderPause.objects.filter(account_id__in=set(accounts), until__gt=timezone.now())
    return {(account, provider): until for account, provider, until in rows.values_list("account", "provider", "until")}


def pause_write(account_id: str, provider: str, seconds: float) -> datetime | None:
    """Leave a provider alone for so long, an hour at most; a longer pause stays. None if the account is gone."""
    until = timezone.now() + timedelta(seconds=min(seconds, LONGEST.total_seconds()))
    try:
        ProviderPause.objects.update_or_create(account_id=account_id, provider=provider, defaults={"until": until})
    except IntegrityError:
        return None
    return until


def is_paused(pauses: Pauses, account_id: str, provider: str, now: datetime) -> bool:
    until = pauses.get((account_id, provider))
    return until is not None and not moment_has_come(until, now, LONGEST)


def remove_ended_pauses() -> int:
    """Remove the rows of pauses that are over. Return how many."""
    return ProviderPause.objects.filter(has_come("until", 2 * LONGEST)).delete()[0]
