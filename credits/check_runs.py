"""Runs of the check of the ledger: a row for each, which the admin shows, and how far each balance was found right."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from credits.ledger_check import Counts
from credits.models import CheckedBalance, LedgerCheck

SENTENCES = 20  # so many of a result are kept
# A nightly check that has not finished after this time has died.
LONGEST = timedelta(hours=6)
BATCH = 1000


def check_begin() -> LedgerCheck:
    """Create the row of a check that was started by hand."""
    return LedgerCheck.objects.create()


def check_begin_nightly() -> LedgerCheck | None:
    """Create the row of this night's check, or take it over from a process that died.

    Return None if another process has made the row already.
    """
    now = timezone.now()
    try:
        with transaction.atomic():
            return LedgerCheck.objects.create(night=now.date(), started_at=now)
    except IntegrityError:
        died = LedgerCheck.objects.filter(night=now.date(), finished_at=None, started_at__lt=now - LONGEST)
        taken = died.update(started_at=now)
        return LedgerCheck.objects.get(night=now.date()) if taken else None


def check_end(
    check: LedgerCheck, counts: Counts, sentences: list[str], differences: int | None, *, is_full: bool = True
) -> None:
    """Store what a check found. If `differences` is None the check failed, and the sentence is the error."""
    now = timezone.now()
    LedgerCheck.objects.filter(pk=check.pk).update(
        finished_at=now,
        seconds=(now - check.started_at).total_seconds(),
        entries=counts.entries,
        records=counts.records,
        balances=counts.balances,
        differences=differences,
        sentences=sentences[:SENTENCES],
        is_full=is_full,
    )


def write_checked_balances(checked: Iterable[CheckedBalance]) -> None:
    """Write up to where balances were checked: the next night continues from there.

    Runs in the caller's transaction, which also writes the position in the records.
    """
    CheckedBalance.objects.bulk_create(
        checked,
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["balance"],
        update_fields=["entry_id", "used", "day", "spent"],
    )
