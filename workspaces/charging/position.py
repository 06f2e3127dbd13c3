"""The one row that says up to which record metering records are charged. Its lock makes passes follow one another."""

from __future__ import annotations

from workspaces.models import ChargePosition

ONLY = 1  # its key


def lock_position() -> ChargePosition:
    """Return the row, locked until the end of the transaction. It is made if there is none."""
    locked = ChargePosition.objects.select_for_update().filter(pk=ONLY)
    found = locked.first()
    if found is None:
        ChargePosition.objects.bulk_create([ChargePosition(pk=ONLY)], ignore_conflicts=True)
        found = locked.get()
    return found


def read_position() -> ChargePosition:
    """Return the row as it is now, not locked."""
    return ChargePosition.objects.filter(pk=ONLY).first() or ChargePosition()
