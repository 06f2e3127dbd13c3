"""Offers: which folder which host may fetch now. They are in memory: who offers does so again after a start."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from vmbackend.guest.ssh_limits import CpuBudget, TotalBudget

from .rates import Rate

# A name without what users of SSH could read otherwise.
OFFER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


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
