"""The network of one start of a machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachinePort:
    """`attach` at any time before the CPUs run, then `connect`, once the machine has a tap and before its CPUs run."""

    attach: Callable[[], None]
    connect: Callable[[], None]
