"""Offers: which folder which host may fetch now. They are in memory: who offers does so again after a start."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from vmbackend.guest.ssh_limits import CpuBudget, TotalBudget

# A name without what users of SSH could read otherwise.
OFFER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


# Seconds' worth of bytes that may pass at once.
BURST_SECONDS = 0.25


class Rate:
    """A limit that all who use it share; 0: none. Belongs to one event loop."""

    def __init__(self, bytes_per_second: int) -> None:
        self._per_second = bytes_per_second
        self._free_at = 0.0  # when all that was let through has had its time

    async def admit(self, size: int) -> None:
        """Return when so many bytes may pass; those who wait do so in the order in which they came."""
        if not self._per_second:
            return
        now = time.monotonic()
        begun = max(self._free_at, now - BURST_SECONDS)
        self._free_at = begun + size / self._per_second
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


@dataclass(eq=False, slots=True)
class Offer:
    """A folder for the host whose key that is. All its transfers share a rate, and one budget of the loop's time."""

    id: str
    folder: Path
    key: asyncssh.SSHKey
    bytes_per_second: int
    total: TotalBudget
    rate: Rate = field(init=False)
    budget: CpuBudget = field(init=False)

    def __post_init__(self) -> None:
        self.rate = Rate(self.bytes_per_second)
        self.budget = CpuBudget(self.total)

    def is_same(self, other: Offer) -> bool:
        """Return whether it lets the same host fetch the same folder as fast."""
        return (self.folder, self.key, self.bytes_per_second) == (other.folder, other.key, other.bytes_per_second)


def read_public_key(line: str) -> asyncssh.SSHKey:
    """Return the key of a public line. Raise ValueError for one of another kind than hosts have."""
    try:
        key = asyncssh.import_public_key(line)
    except asyncssh.KeyImportError as error:
        raise ValueError("This is not the public line of an SSH key.") from error
    if key.get_algorithm() != "ssh-ed25519":
        raise ValueError("The keys of hosts are of the kind ssh-ed25519.")
    return key
