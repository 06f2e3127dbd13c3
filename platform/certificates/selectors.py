"""Reading certificates. Never the private keys: those are read by the serving side alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

SslStatus = Literal["none", "pending", "active", "failed", "expired"]


@dataclass(frozen=True, slots=True)
class SslState:
    """`expires_at`: of the certificate that is served. `error`: a sentence for the owner, empty where all is well."""

    status: SslStatus
    expires_at: datetime | None
    error: str


def certificate_states(names: Collection[str]) -> dict[str, SslState]:
    """The state of each of these names; `none` for those without a certificate. One query."""
    return {name: SslState("none", None, "") for name in names}
