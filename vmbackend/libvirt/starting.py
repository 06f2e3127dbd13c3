"""What happens around the start of a machine's process, whether it is cold or restores saved memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StartHooks:
    """`attach` adds the machine to its network. `limit` limits its process. Both complete before its CPUs run.

    `confined_xml`: the XML of saved memory as it must be restored; None: as it was saved.
    """

    attach: Callable[[], None]
    limit: Callable[[Any], None]
    confined_xml: Callable[[str], str | None]
