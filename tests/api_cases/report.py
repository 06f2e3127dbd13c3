"""The report of `make fuzz-api`: cases by operation and status. `python -m tests.api_cases.report FILE` prints it."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path


def record(file: Path, name: str, mode: str, seed: int, counts: Counter[int]) -> None:
    """Append one line for the cases of an operation that ended well."""
    line = {"operation": name, "mode": mode, "seed": seed, "counts": counts}
    with file.open("a") as report:
        report.write(json.dumps(line) + "\n")


def report_lines(lines: Iterable[str]) -> list[str]:
    """A line for each operation, with its cases by status, and the sum."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        made = json.loads(line)
        found[made["operation"]].update(made["counts"])
    total = sum((counts for counts in found.values()), Counter[str]())
    shown = [f"{name}  {_shown(counts)}" for name, counts in sorted(found.items())]
    return [*shown, f"{total.total()} cases of {len(found)} operations: {_shown(total)}"]


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{status}: {number}" for status, number in sorted(counts.items()))


if __name__ == "__main__":
    sys.stdout.write("\n".join(report_lines(Path(sys.argv[1]).read_text().splitlines())) + "\n")
