"""The hold that machines of the fake driver do not have."""

from __future__ import annotations

from vmbackend.guest.hold import HoldUnsupported
from vmbackend.guest.hold.transport import Transport


async def no_hold() -> Transport:
    """Raise HoldUnsupported."""
    raise HoldUnsupported("Machines of the fake driver have no terminals and no tasks.")
