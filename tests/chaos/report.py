"""Counts of a run and its violations. Threads share one report."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

MOST_OF_ONE = 8  # violations of one invariant that are shown
MOST_LOG_ERRORS = 20
# The last line of a traceback.
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: .*)?$")


class Report:
    """What happened. `violations` are sentences, each said once, with the second of the run at which it was found."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.faults: Counter[str] = Counter()
        self.operations: Counter[tuple[str, str]] = Counter()
        self.checks: Counter[str] = Counter()
        self.violations: list[str] = []
        self.log_errors: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self._known: set[str] = set()
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._out = out

    def say(self, text: str) -> None:
        """One line with the second of the run."""
        with self._lock:
            self._out.write(f"{self._seconds():7.1f} {text}\n")
            self._out.flush()

    def count_fault(self, kind: str, hit: str) -> None:
        with self._lock:
            self.faults[kind] += 1
        self.say(f"fault: {kind}: {hit}")

    def count_operation(self, name: str, outcome: str) -> None:
        with self._lock:
            self.operations[name, outcome] += 1

    def record_check(self, invariant: str, problems: Iterable[str], checked: int = 1) -> None:
        """Count a check, and record each problem it found as a violation of the invariant."""
        with self._lock:
            self.checks[invariant] += checked
        for problem in problems:
            self._violate(invariant, f"{invariant}: {problem}")

    def _violate(self, invariant: str, text: str) -> None:
        with self._lock:
            if text in self._known:
                return
            self._known.add(text)
            self.found[invariant] += 1
            self.violations.append(f"{self._seconds():7.1f} {text}")
            shown = self.found[invariant] <= MOST_OF_ONE
        if shown:
            self.say(f"VIOLATION {text}")

    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    def add_log_errors(self, folder: Path) -> None:
        """Count the exceptions in the logs, for the reader: none of them is a violation by itself."""
        for path in folder.glob("*.log*"):
            begun = False
            for line in path.read_text(errors="replace").splitlines():
                begun |= line.startswith("Traceback")
                if begun and (found := _EXCEPTION.match(line)):
                    self.log_errors[f"{path.name.partition('.')[0]}: {found[0][:120]}"] += 1
                    begun = False

    def summary(self) -> str:
        """The tables that a run ends with."""
        lines = ["", f"faults: {self.faults.total()}"]
        lines += [f"  {count:6} {kind}" for kind, count in sorted(self.faults.items())]
        lines += ["", f"operations: {self.operations.total()}"]
        lines += [f"  {row}" for row in self._operation_rows()]
        lines += ["", f"checks: {self.checks.total()}"]
        lines += [f"  {count:6} {name}" for name, count in sorted(self.checks.items())]
        lines += ["", f"exceptions in the logs: {self.log_errors.total()}"]
        lines += [f"  {count:6} {text}" for text, count in self.log_errors.most_common(MOST_LOG_ERRORS)]
        lines += ["", f"violations: {len(self.violations)}"]
        lines += [f"  {count:6} {name}" for name, count in self.found.most_common()]
        for name in self.found:
            lines += [f"  {text}" for text in self.violations if text[8:].startswith(f"{name}: ")][:MOST_OF_ONE]
        return "\n".join(lines)

    def _operation_rows(self) -> list[str]:
        names = sorted({name for name, _ in self.operations})
        outcomes = sorted({outcome for _, outcome in self.operations})
        rows = ["".join([f"{'':20}", *(f"{outcome:>13}" for outcome in outcomes)])]
        for name in names:
            counts = (self.operations[name, outcome] for outcome in outcomes)
            rows.append("".join([f"{name:20}", *(f"{count or '':>13}" for count in counts)]))
        return rows
