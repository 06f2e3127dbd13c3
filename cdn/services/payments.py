"""Credits of the service `cdn`: held at the permit, settled at publication (wire contract, sections 7 and 9).

The file's namespace pays; for files without one, the account's default namespace. Permits keep the payer's plain id: a
namespace may be deleted while a hold is open, and the ledger outlives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models.functions import Now

from cdn.models import File, Permit
from common.compiled_query import CompiledQuery
from credits.amounts import MAX_CREDITS, PLACES
from credits.entries import Purpose
from credits.holds import credits_hold, hold_settle, hold_void
from credits.models import Rate, Service, Unit
from namespaces.models import Namespace

BYTES_PER_GB = 10**9
_RATE = CompiledQuery(
    lambda values: (
        Rate.objects.filter(unit=values[0], effective_from__lte=Now())
        .order_by("-effective_from")
        .values_list("credits")
    )
)


@dataclass(frozen=True, slots=True)
class Held:
    """Credits that a permit sets aside."""

    payer: Namespace
    key: str
    amount: Decimal
    until: datetime


def price_of(size: int) -> Decimal:
    """Return the price by the present rate, to 8 places. One query."""
    row = _RATE.first_row([Unit.CDN_GB])
    rate = Decimal(0) if row is None else row[0]
    return min(Decimal(size) / BYTES_PER_GB * rate, MAX_CREDITS).quantize(PLACES)


def hold_of(permit: Permit, payer: Namespace, until: datetime) -> Held:
    """Return the hold for the bytes that the permit reserves, and note it in the permit."""
    permit.payer_id, permit.hold_key = payer.pk, f"cdn:{permit.file_id}"
    return Held(payer, permit.hold_key, price_of(permit.reserved_bytes), until)


def hold_grow(permit: Permit, payer: Namespace, until: datetime) -> None:
    """Hold the price of what the permit reserves now in place of the former price, in the transaction that has grown
    it. Raise QuotaExceeded.
    """
    hold_void(namespace=payer, service=Service.CDN, key=permit.hold_key)
    amount = price_of(permit.reserved_bytes)
    credits_hold(namespace=payer, service=Service.CDN, amount=amount, key=permit.hold_key, until=until)


def hold_end(permit: Permit, file: File) -> None:
    """Charge a published file, in the transaction of its publication."""
    purpose = Purpose(description=f"CDN: {file.pk}")
    amount = price_of(file.footprint)
    hold_settle(
        namespace=_payer(permit, file), service=Service.CDN, key=permit.hold_key, amount=amount, purpose=purpose
    )


def hold_release(permit: Permit, file: File) -> None:
    """Give the hold back, in the transaction that ends the permit. Idempotent."""
    hold_void(namespace=_payer(permit, file), service=Service.CDN, key=permit.hold_key)


def _payer(permit: Permit, file: File) -> Namespace:
    return Namespace(pk=permit.payer_id, account_id=file.account_id)
