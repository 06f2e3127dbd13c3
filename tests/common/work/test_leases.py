"""Claims and leases: one owner at a time, whatever dies when and whatever clocks say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection, models
from django.db.models import Q
from django.db.models.functions import Now

from common.work.clock import has_come, is_to_come, moment_has_come
from common.work.leases import ClaimLost, CountedLeasedRow, Lease, new_claim, owned_rows, release_row
from tests.threads import run_at_once

LEASE = Lease(timedelta(seconds=30))


class Job(CountedLeasedRow):
    """A row of work; its table is made by the fixture."""

    state = models.CharField(max_length=8, default="due")

    class Meta:
        app_label = "tests_of_work"


@pytest.fixture
def job(transactional_db: None) -> Iterator[Job]:
    with connection.schema_editor() as editor:
        editor.create_model(Job)
    try:
        yield Job.objects.create()
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Job)


def claimed(**columns: object) -> Job | None:
    token = new_claim()
    return Job.objects.get() if LEASE.claim_rows(Job.objects.all(), token, **columns) else None


def lease_ends(**span: float) -> None:
    """So long from now, by the database's clock."""
    Job.objects.update(lease_until=Now() + timedelta(**span))


def test_a_row_has_one_owner_until_its_lease_is_over(job: Job) -> None:
    first = claimed(attempt=1)
    assert first is not None
    assert (first.attempt, first.claim_epoch) == (1, 0)
    assert claimed() is None
    assert list(Job.objects.filter(LEASE.held())) == [job]
    lease_ends(seconds=0)
    assert list(Job.objects.filter(LEASE.free())) == [job]
    second = claimed()
    assert second is not None
    assert second.claim != first.claim


def test_an_owner_that_lost_its_claim_changes_nothing(job: Job) -> None:
    first = claimed()
    assert first is not None
    lease_ends(seconds=-1)
    LEASE.write_row(first, state="late")  # no other claimed it: it is still its own
    lease_ends(seconds=-1)
    second = claimed()
    assert second is not None
    with pytest.raises(ClaimLost):
        LEASE.write_row(first, state="lost")
    assert not release_row(first, state="lost")
    LEASE.write_row(second, state="mine")
    assert (Job.objects.get().state, second.state) == ("mine", "mine")


def test_a_write_is_guarded_by_what_else_must_be_true(job: Job) -> None:
    owner = claimed()
    assert owner is not None
    with pytest.raises(ClaimLost):
        LEASE.write_row(owner, Q(state="other"), state="lost")
    LEASE.write_row(owner, Q(state="due"), state="done")
    assert Job.objects.get().state == "done"


def test_what_was_given_back_is_free_and_has_no_owner(job: Job) -> None:
    owner = claimed()
    assert owner is not None
    assert release_row(owner, state="again")
    assert not owned_rows(owner).exists()
    found = Job.objects.get()
    assert (found.claim, found.lease_until, found.state) == ("", None, "again")
    with pytest.raises(ClaimLost):
        LEASE.write_row(found, state="of no owner")
    assert claimed() is not None


def test_a_higher_epoch_ends_all_claims_of_a_host(job: Job) -> None:
    owner = claimed(epoch=3)
    assert owner is not None
    Job.objects.filter(claim_epoch__lt=4).update(claim_epoch=4)
    with pytest.raises(ClaimLost):
        LEASE.write_row(owner)


def test_of_many_claims_at_once_one_is_taken(job: Job) -> None:
    def take(_: int) -> None:
        if not LEASE.claim_rows(Job.objects.all(), new_claim()):
            raise ClaimLost

    outcomes = run_at_once(8, take)
    assert outcomes.count("done") == 1


def test_a_lease_from_before_the_clock_was_set_back_is_over(job: Job) -> None:
    assert claimed() is not None
    lease_ends(hours=1)
    assert claimed() is not None


def test_a_lease_of_a_statement_that_waited_for_a_lock_is_not_over(job: Job) -> None:
    """It reads the time at which it began, a moment before the one that it waited for."""
    assert claimed() is not None
    lease_ends(seconds=LEASE.length.total_seconds() + 10)
    assert claimed() is None


def test_a_time_has_come_that_no_rule_gives(job: Job) -> None:
    minute, rows = timedelta(minutes=1), Job.objects
    for seconds, expected in ((-1, True), (30, False), (90, True)):
        lease_ends(seconds=seconds)
        assert rows.filter(has_come("lease_until", minute)).exists() is expected
        assert rows.filter(is_to_come("lease_until", minute)).exists() is not expected
        found, now = rows.values_list("lease_until", Now()).get()
        assert found is not None
        assert moment_has_come(found, now, minute) is expected
