"""The progress of `make fuzz-api`, and its report: `python -m tests.api_cases.report FILE CASES` prints it."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.api_cases.cases import Kind, Sent

# Of a kind in one go: they are different ones, while those of another seed may be the same.
CASES_EACH = 100
# After each deletion there is a new stage, which takes as long as fifty cases.
DELETIONS = 5


@dataclass
class Progress:
    """A file with a line for the cases of a kind with a seed. All processes append to it; a run goes on where it
    ended.
    """

    file: Path
    cases: int

    def left(self) -> int:
        return max(0, self.cases - sum(sum(line["counts"].values()) for line in self._lines()))

    def count(self, kind: Kind, seed: int, kinds: int) -> int:
        """How many cases to send; 0 where these were sent, or where the kind had fewer than half of them."""
        each, left = min(_most(kind), max(1, self.cases // kinds)), self.cases
        for line in self._lines():
            sent = sum(line["counts"].values())
            left -= sent
            was_sent = line["seed"] == seed or 2 * sent < line["asked"]
            if was_sent and (line["operation"], line["kind"]) == (kind.operation, str(kind)):
                return 0
        return max(0, min(each, left))

    def record(self, kind: Kind, seed: int, asked: int, sent: Sent) -> None:
        line = {"operation": kind.operation, "kind": str(kind), "seed": seed, "asked": asked}
        text = json.dumps({**line, "counts": sent.counts, "faults": [*sent.faults.values()]}) + "\n"
        with self.file.open("ab", buffering=0) as report:
            report.write(text.encode())

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


def report_lines(lines: Iterable[str], asked: int) -> list[str]:
    """A line for each operation with its cases by status, the operations that never succeeded, sums, and the faults."""
    made = [json.loads(line) for line in lines]
    operations, kinds = _by(made, "operation"), _by(made, "kind")
    total = sum(operations.values(), Counter[str]())
    never = [name for name, counts in sorted(operations.items()) if not _share(counts, "2")]
    found = [f"{name}  {_shown(counts)}" for name, counts in sorted(operations.items())]
    found += [f"never 2xx: {name}" for name in never]
    found += [f"{kind}: {counts.total()} cases, {_shares(counts)}" for kind, counts in sorted(kinds.items())]
    found.append(f"{total.total()} cases of {len(operations)} operations: {_shown(total)}")
    if total.total() < asked:
        found.append(f"{asked} were asked for: the run ended early, or no operation has other cases")
    return [*found, *_faults(made)]


def _most(kind: Kind) -> int:
    """Few of what is refused early, or takes long."""
    if kind.operation.startswith("DELETE "):
        return DELETIONS
    return CASES_EACH // 8 if kind.elsewhere else CASES_EACH


def _by(made: list[dict[str, Any]], field: str) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line in made:
        found[line[field]].update(line["counts"])
    return found


def _faults(made: list[dict[str, Any]]) -> list[str]:
    """The first of each operation and first words."""
    found: dict[tuple[str, str], str] = {}
    for line in made:
        for fault in line["faults"]:
            found.setdefault((line["operation"], fault[:40]), f"FAULT: {line['operation']} ({line['kind']}): {fault}")
    return [*found.values()]


def _shown(counts: Counter[str]) -> str:
    statuses = ", ".join(f"{status}: {number}" for status, number in sorted(counts.items()))
    return f"{statuses} ({_shares(counts)})"


def _shares(counts: Counter[str]) -> str:
    return f"{_share(counts, '2')}% 2xx, {_share(counts, '4')}% 4xx"


def _share(counts: Counter[str], digit: str) -> int:
    """In percent; 0 only where there is none."""
    return -(-100 * sum(number for status, number in counts.items() if status[0] == digit) // max(1, counts.total()))


if __name__ == "__main__":
    sys.stdout.write("\n".join(report_lines(Path(sys.argv[1]).read_text().splitlines(), int(sys.argv[2]))) + "\n")
