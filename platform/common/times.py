"""Times in responses: ISO 8601 in UTC with `Z`, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@overload
def iso(moment: datetime) -> str: ...
@overload
def iso(moment: None) -> None: ...
def iso(moment: datetime | None) -> str | None:
    """Return `2026-01-31T12:00:00.000Z`, or None for None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_epoch(seconds: float) -> datetime:
    """Return seconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def moment(seconds: float) -> datetime:
    """Return the time so many seconds after 1970; 1970 for what is no time, as a guest may claim any."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return EPOCH
