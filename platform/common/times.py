"""Times in responses: ISO 8601 in UTC with `Z`, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


@overload
def iso(moment: datetime) -> str: ...
@overload
def iso(moment: None) -> None: ...
def iso(moment: datetime | None) -> str | None:
    """`2026-01-31T12:00:00.000Z`, or None for None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
