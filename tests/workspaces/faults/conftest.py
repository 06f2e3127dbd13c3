"""The account of the fault table, printed at the end of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Tally:
    steps: set[tuple[str, str]] = field(default_factory=set)
    faults: set[str] = field(default_factory=set)
    entries: int = 0
    inconsistencies: list[str] = field(default_factory=list)

    def enter(self, case: str, step: str, fault: str, wrong: list[str]) -> None:
        self.steps.add((case, step))
        self.faults.add(fault)
        self.entries += 1
        self.inconsistencies += [f"{case}, {step}, {fault}: {sentence}" for sentence in wrong]

    def line(self) -> str:
        return (
            f"faults: {len(self.steps)} steps x {len(self.faults)} faults, {len(self.inconsistencies)} inconsistencies"
        )


TABLE, DRIVER = Tally(), Tally()


@pytest.fixture(scope="session")
def table() -> Tally:
    """Steps of operations against faults."""
    return TABLE


@pytest.fixture(scope="session")
def in_the_driver() -> Tally:
    """Points in the middle of the driver's work against faults."""
    return DRIVER


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TABLE.entries:
        terminalreporter.write_line(TABLE.line())
    if DRIVER.entries:
        terminalreporter.write_line(f"{DRIVER.line()} (in the middle of the driver's work)")
