"""Check of the ledger: all of it, or the part that is new since the last check without findings.

A full check reads every entry and every record. The nightly check continues from the end of the last one without
findings, so that its time depends on a day and not on the history. If something seems to differ, a full check follows,
which names the difference. A difference keeps the position, and every nightly check is full until it is corrected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain

from django.db import transaction
from django.db.models import F, Max
from django.utils import timezone

from common.exact_sums import exact_sum
from common.snapshots import read_snapshot
from credits.amounts import stored_amount
from credits.check_runs import check_begin, check_begin_nightly, check_end, write_checked_balances
from credits.ledger_check import CHUNK, Counts, balance_drifts, new_balance_drifts
from credits.models import LedgerCheck
from workspaces.charging.check_position import check_position_next, check_position_read, check_window
from workspaces.charging.position import read_position
from workspaces.charging.sums_check import CheckWindow, charge_drifts, shown_credits, sum_drifts
from workspaces.models import BillingCycle, CheckPosition, CycleUsage, MeterRecord

logger = logging.getLogger(__name__)

NIGHT = 2  # the hour of UTC from which the nightly check runs
Show = Callable[[str], object]


def ledger_check(check: LedgerCheck, show: Show = logger.error) -> int:
    """Compare everything in one snapshot of the database, show each difference, and store the result in the row. Return
    the number of differences.

    The memory it takes does not grow with the entries or the records, and no writer waits for it. If there is no
    difference, the next nightly check continues from here.
    """
    counts, sentences, differences = Counts(), list[str](), 0
    try:
        with read_snapshot():
            for sentence in all_drifts(counts):
                show(sentence)
                differences += 1
                if len(sentences) < CHUNK:
                    sentences.append(sentence)
            position = None if differences else check_position_next(None)
    except BaseException as exc:
        check_end(check, counts, [f"{type(exc).__name__}: {exc}", *sentences], None)
        raise
    if position is not None:
        _write_position(position, counts)
    check_end(check, counts, sentences, differences)
    return differences


def ledger_check_by_hand(show: Show) -> int:
    """Do what `ledger_check` does, with a row of its own."""
    return ledger_check(check_begin(), show)


def ledger_check_nightly() -> int | None:
    """Make the check once in each night. Return None if it was made already, or if it is not night yet. A process that
    dies leaves its row, and the check is made again after hours.
    """
    if timezone.now().hour < NIGHT:
        return None
    check = check_begin_nightly()
    if check is None:
        return None
    return 0 if ledger_check_new(check) else ledger_check(check)


def ledger_check_new(check: LedgerCheck) -> bool:
    """Compare new entries and records. Return False if something may differ, or if there is no position to continue
    from.
    """
    counts, position = Counts(), None
    with read_snapshot():
        since = check_position_read()
        window = check_window(since) if since is not None else None
        if since is None or window is None:
            return False
        found = next(new_drifts(counts, since, window), None)
        if found is not None:
            logger.warning("the check of new entries of the ledger found a difference; a full check follows: %s", found)
            return False
        position = check_position_next(since)
    if position is not None:
        _write_position(position, counts)
    check_end(check, counts, [], 0, is_full=False)
    return True


@transaction.atomic
def _write_position(position: CheckPosition, counts: Counts) -> None:
    """Store balances and position, both as they were in one snapshot."""
    write_checked_balances(counts.checked)
    position.save()


def all_drifts(counts: Counts) -> Iterator[str]:
    """Yield a sentence for each difference. Read it inside a snapshot."""
    counts.metered_after = read_position().first_cycle_entry_id
    return chain(
        balance_drifts(counts, charge_drifts), sum_drifts(counts), _cycle_drifts(counts, None), _position_drifts()
    )


def new_drifts(counts: Counts, since: CheckPosition, window: CheckWindow) -> Iterator[str]:
    """Yield a sentence for each difference in new entries and records. Read it inside a snapshot."""
    balances, sums = new_balance_drifts(counts, window.charged), sum_drifts(counts, window)
    return chain(balances, sums, _cycle_drifts(counts, since), _position_drifts())


def _position_drifts() -> Iterator[str]:
    """Yield a sentence if records have numbers below the position: they are never charged. Numbers of records only
    grow, unless a sequence was not restored with its table.
    """
    position = read_position().record_id
    newest = MeterRecord.objects.aggregate(last=Max("id"))["last"] or 0
    if position > newest:
        yield f"records are charged up to {position}, and the newest one is {newest}: those in between never will be"


def _cycle_drifts(counts: Counts, since: CheckPosition | None) -> Iterator[str]:
    """Yield a sentence if a charge is not in exactly one billing cycle: reported, or not reported yet."""
    cycles = BillingCycle.objects.filter(pk__gt=since.cycle_number if since else 0)
    reported = cycles.aggregate(sum=exact_sum("credits"))["sum"]
    waiting = CycleUsage.objects.aggregate(sum=exact_sum("credits"))["sum"]
    found = reported + waiting - (stored_amount(since.open_credits) if since else 0)
    if found != counts.metered:
        yield (
            f"billing cycles sum to {shown_credits(found)}, and the entries charged in them to "
            f"{shown_credits(counts.metered)}"
        )
    left = CycleUsage.objects.exclude(cycle__closed_at=None).count()
    passed = CycleUsage.objects.filter(metered_id__lte=F("cycle__reported_id")).count()
    if left or passed:
        yield f"billing cycles: {left} workspaces of closed ones, and {passed} before a position, are not reported"
