"""Prices of usage in credits, by the rates valid at its time. No other module writes rates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Self

from django.utils import timezone

from common.errors import Conflict, ValidationError
from common.saved_rows import delete_unless_deleted, save_unless_deleted
from credits.amounts import PLACES
from credits.models import MAX_PRICE, Rate, Unit

MINUTES = Decimal(60)
# A metering tick, and the transaction that charges it, may be this far from the clock of the process that saves a rate.
LEAD = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Units:
    """Raw units of usage (specification, Raw usage units bucket).

    A GB is 1e9 bytes of disk or network, and 1024 MiB of memory.
    """

    cpu_time_minutes: Decimal = Decimal(0)
    memory_gb_minutes: Decimal = Decimal(0)
    disk_io_gb: Decimal = Decimal(0)
    network_gb: Decimal = Decimal(0)


class Rates:
    """Table of all rates, loaded once to price many amounts."""

    def __init__(self, rows: Iterable[Rate]) -> None:
        self._rows = sorted(rows, key=lambda row: row.effective_from, reverse=True)

    @classmethod
    def load(cls) -> Self:
        return cls(Rate.objects.all())

    def credits(self, unit: Unit, at: datetime) -> Decimal:
        """Return the price of one unit at that moment; zero before its first rate."""
        return next((row.credits for row in self._rows if row.unit == unit and row.effective_from <= at), Decimal(0))

    def changes(self, since: datetime, until: datetime) -> list[datetime]:
        """Return the times at which prices change within a span, in order."""
        return sorted({row.effective_from for row in self._rows if since < row.effective_from < until})

    def price_of(self, units: Units, at: datetime) -> Decimal:
        """Return the credits for units used at that moment."""
        price = (
            units.cpu_time_minutes / MINUTES * self.credits(Unit.VCPU_HOUR, at)
            + units.memory_gb_minutes / MINUTES * self.credits(Unit.GB_HOUR, at)
            + units.disk_io_gb * self.credits(Unit.DISK_GB, at)
            + units.network_gb * self.credits(Unit.NETWORK_GB, at)
        )
        return price.quantize(PLACES)


def is_future(rate: Rate) -> bool:
    """Return whether nothing can have been charged by this rate yet, so that it may still be changed."""
    return rate.effective_from > timezone.now() + LEAD


def rate_save(rate: Rate) -> Rate:
    """Add a rate, or change a rate that is not valid yet.

    Raise Conflict if the rate is valid already, or if its time is so early that something may have been charged by the
    former price: charges stay reproducible. Raise ValidationError if the price is above MAX_PRICE, and NotFound if the
    rate was deleted since it was read.
    """
    _require_changeable(rate)
    if rate.credits > MAX_PRICE:
        raise ValidationError(details={"credits": [f"A price is {MAX_PRICE:f} credits at most."]})
    if not is_future(rate):
        raise Conflict(f"A price begins {LEAD.total_seconds():.0f} s from now at the earliest.")
    save_unless_deleted(rate)
    return rate


def rate_delete(rate: Rate) -> None:
    """Delete a rate that is not valid yet.

    Raise Conflict if the rate is valid already or nearly so, and NotFound if it was deleted since it was read.
    """
    _require_changeable(rate)
    delete_unless_deleted(rate)


def _require_changeable(rate: Rate) -> None:
    stored = Rate.objects.filter(pk=rate.pk).first()
    if stored is not None and not is_future(stored):
        raise Conflict("A rate that is valid, or will be within a minute, cannot be changed. Add a new rate.")
