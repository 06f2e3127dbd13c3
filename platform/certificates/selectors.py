"""Reading certificates. Never the private keys but for the edge (served_certificate)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.utils import timezone

from certificates.ca_account import CERTIFICATES_OFF, is_on
from certificates.models import Certificate, Status
from common.compiled_query import CompiledQuery

SslStatus = Literal["none", "pending", "active", "failed", "expired"]


@dataclass(frozen=True, slots=True)
class SslState:
    """`expires_at`: of the certificate that is served, or was. `error`: a sentence for the owner, empty if all is
    well.
    """

    status: SslStatus
    expires_at: datetime | None
    error: str


def certificate_states(names: Collection[str]) -> dict[str, SslState]:
    """Return the state of each of these names; `none` for those without a certificate. One query."""
    rows = Certificate.objects.filter(name__in=set(names), wanted=True)
    found = {row.name: _state(row) for row in rows.only("name", "status", "expires_at", "error")}
    nothing = SslState("none", None, "" if is_on() else CERTIFICATES_OFF)
    return {name: found.get(name, nothing) for name in names}


def _state(row: Certificate) -> SslState:
    if row.expires_at is None:
        if not is_on():
            return SslState("none", None, CERTIFICATES_OFF)
        return SslState("failed" if row.status == Status.FAILED else "pending", None, row.error)
    # Its time may be over before the next step is.
    is_over = row.expires_at <= timezone.now()
    return SslState("expired" if is_over else "active", row.expires_at, row.error)


def active_names() -> set[str]:
    """Return the names for which a certificate can be served, as the last step of each left them."""
    return set(Certificate.objects.filter(wanted=True, status=Status.ACTIVE).values_list("name", flat=True))


def is_active(name: str) -> bool:
    """Return whether `active_names` has it."""
    return Certificate.objects.filter(name=name, wanted=True, status=Status.ACTIVE).exists()


# Asked at each handshake.
_ACTIVE = CompiledQuery(
    lambda values: (
        Certificate.objects.filter(name=values[0], status=Status.ACTIVE)
        .order_by()
        .values_list("chain", "key", "expires_at")
    )
)


def served_certificate(name: str) -> str:
    """Return the chain and the private key (PEM) with which the edge serves a name; empty for every other name."""
    row = _ACTIVE.first_row([name])
    return f"{row[0]}{row[1]}" if row and row[2] > timezone.now() else ""
