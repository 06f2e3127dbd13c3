"""The lease of a row: one process does its work, until the lease is over however that process ends.

A claim is taken by compare-and-set: one UPDATE of rows that are free, with a token that only this claim has. Each write
of the owner is guarded by that token, so an owner that lost its claim changes nothing and gets `ClaimLost`. A lease is
written and compared by the database's clock within the statement (`Now()`), never by that of a host.

`claim_epoch` is reserved for several hosts: the epoch of the owner's host when it claimed. It is part of the guard, so
that one UPDATE that raises it ends all claims of a host whose name another machine has got. Until hosts have epochs it
is 0.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from django.db import models
from django.db.models import Q, QuerySet
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from common.work.clock import has_come, is_to_come

CLAIM_CHARACTERS = 32


class ClaimLost(Exception):
    """The row is not this process's any more: another one has claimed it, or its work was ended or given up."""


class LeasedRow(models.Model):
    """Columns of a row whose work one process at a time does. `claim` is empty while none does; a lease beside an empty
    claim is a pause before the next attempt.
    """

    claim = models.CharField(max_length=CLAIM_CHARACTERS, blank=True, default="")
    claim_epoch = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class CountedLeasedRow(LeasedRow):
    """As well, how many times it was claimed: work that ends its process each time must not be begun for ever."""

    attempt = models.PositiveIntegerField(default=0)

    class Meta:
        abstract = True


Row = TypeVar("Row", bound=LeasedRow)


def new_claim() -> str:
    """Return a token that identifies one attempt of one process."""
    return secrets.token_hex(CLAIM_CHARACTERS // 2)


class Claim(Protocol):
    """An identified claim: a row that was read, or what was kept of it."""

    @property
    def claim(self) -> str: ...

    @property
    def claim_epoch(self) -> int: ...


def is_claim_of(row: Claim, owner: Claim) -> bool:
    """Return whether a row that was read under a lock is still that owner's."""
    return bool(owner.claim) and (row.claim, row.claim_epoch) == (owner.claim, owner.claim_epoch)


def owned_rows(row: Row) -> QuerySet[Row]:
    """Return the row, while its claim is that of `row`; nothing afterwards."""
    rows: QuerySet[Row] = type(row)._default_manager.filter(pk=row.pk, claim=row.claim, claim_epoch=row.claim_epoch)
    return rows if row.claim else rows.none()


@dataclass(frozen=True, slots=True)
class Lease:
    """A kind of lease: how long an owner may be silent, and the statements of such leases."""

    length: timedelta

    @property
    def longest(self) -> timedelta:
        """Return the longest time from now at which a lease can end; a later one was taken before the clock was set
        back. It is twice the length: a statement that waited for the lock of a row reads an earlier time than the one
        that it waited for, and must not take its row.
        """
        return 2 * self.length

    def free(self) -> Q:
        """Return rows that no process has."""
        return Q(lease_until=None) | has_come("lease_until", self.longest)

    def held(self) -> Q:
        """Return the others; also those of a process that died, until their leases are over."""
        return is_to_come("lease_until", self.longest)

    def end(self) -> CombinedExpression:
        """Return when a lease ends that is taken or renewed by this statement."""
        return Now() + self.length

    def claim_rows(self, rows: QuerySet[Row], claim: str, *, epoch: int = 0, **columns: Any) -> int:
        """Claim those of `rows` that are free. Return how many; which ones, a query by `claim` says."""
        return self.take_rows(rows.filter(self.free()), claim, epoch=epoch, **columns)

    def take_rows(self, rows: QuerySet[Row], claim: str, *, epoch: int = 0, **columns: Any) -> int:
        """Claim all of `rows`, whose filters say that no process works on them. Return how many."""
        return rows.update(claim=claim, claim_epoch=epoch, lease_until=self.end(), **columns)

    def write_row(self, row: Row, among: Q = Q(), **columns: Any) -> None:  # noqa: B008 - it is never changed
        """Write columns of an owned row, if it is `among` these, and renew its lease. Raise ClaimLost."""
        if not owned_rows(row).filter(among).update(**columns, lease_until=self.end()):
            raise ClaimLost(row.pk)
        for name, value in columns.items():
            setattr(row, name, value)


def release_row(row: LeasedRow, among: Q = Q(), **columns: Any) -> bool:  # noqa: B008
    """Give the claim of an owned row back, with these columns; `lease_until` may be the end of a pause. Return False
    if it is lost; nothing is written.
    """
    return bool(owned_rows(row).filter(among).update(**{"claim": "", "lease_until": None, **columns}))
