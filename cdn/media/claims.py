"""The claim of a file that is processed, renewed from a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cdn.services.processing import ClaimedFile, processing_heartbeat
from common.work.renewals import claim_renewed

HEARTBEAT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class HeldFile:
    """File whose claim is renewed. `require_held` raises ClaimLost once the claim is lost."""

    file: ClaimedFile
    require_held: Callable[[], None]


@contextmanager
def file_held(claimed: ClaimedFile) -> Iterator[HeldFile]:
    """Renew the claim within the block."""
    with claim_renewed(lambda: processing_heartbeat(claimed), HEARTBEAT_SECONDS) as renewed:
        yield HeldFile(claimed, renewed.require_held)
