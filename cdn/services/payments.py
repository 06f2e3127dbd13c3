"""Credits of the service `cdn`: held at the permit, settled at publication (wire contract, sections 7 and 9).

The payer is the file's namespace, and for files without one the account's default namespace. Permits keep its plain id:
a namespace may be deleted while a hold is open, and the ledger outlives it.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.utils import timezone

from cdn.models import File, Permit
from credits.amounts import MAX_CREDITS, PLACES
from credits.entries import Purpose
from credits.holds import credits_hold, hold_settle, hold_void
from credits.models import Service, Unit
from credits.services import Rates
from namespaces.models import Namespace

BYTES_PER_GB = 10**9


def price_of(size: int, at: datetime) -> Decimal:
    """By the rate at that time, to 8 places."""
    price = Decimal(size) / BYTES_PER_GB * Rates.load().credits(Unit.CDN_GB, at)
    return min(price, MAX_CREDITS).quantize(PLACES)


def hold_begin(permit: Permit, payer: Namespace, until: datetime) -> None:
    """Hold the price of what is reserved, in the permit's transaction. Raises QuotaExceeded."""
    permit.payer_id, permit.hold_key = payer.pk, f"cdn:{permit.file_id}"
    amount = price_of(permit.reserved_bytes, timezone.now())
    credits_hold(namespace=payer, service=Service.CDN, amount=amount, key=permit.hold_key, until=until)


def hold_end(permit: Permit, file: File) -> None:
    """Charge what was published, in its transaction."""
    purpose = Purpose(description=f"CDN: {file.pk}")
    amount = price_of(file.footprint, timezone.now())
    hold_settle(
        namespace=_payer(permit, file), service=Service.CDN, key=permit.hold_key, amount=amount, purpose=purpose
    )


def hold_release(permit: Permit, file: File) -> None:
    """Give the hold back, in the transaction that ends the permit. Idempotent."""
    hold_void(namespace=_payer(permit, file), service=Service.CDN, key=permit.hold_key)


def _payer(permit: Permit, file: File) -> Namespace:
    return Namespace(pk=permit.payer_id, account_id=file.account_id)
