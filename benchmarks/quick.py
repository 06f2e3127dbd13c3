"""Eleven ratios beside their bars in about six minutes, each by a short run of the benchmark that has it at length.

    STATE=./var .venv/bin/python -m benchmarks.quick [NAME ...]

It needs an instance (`make up`) and a machine that does nothing else. A bar that is missed is a reason to run that
benchmark at length beside the commit before. Each benchmark is a process of its own, as its settings differ.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.common import STATE

RATIO = r"ratio:? (?:rate )?([\d.]+)"
LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Measure:
    """One ratio: the benchmark that prints it, the place of the ratio in its output, and the bar."""

    name: str
    command: str
    place: int
    bar: float
    higher_is_better: bool
    pattern: str = RATIO

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.bar if self.higher_is_better else ratio <= self.bar

    @property
    def shown_bar(self) -> str:
        return f"at {'least' if self.higher_is_better else 'most'} {self.bar:g}"


# Measures with the same command share one run of it.
API = "api --seconds 2 --rows 20000"
MEASURES = (
    Measure("create", "boot --count 3", 0, 1.25, False),
    Measure("wake", "wake --count 3", 0, 1.3, False),
    Measure("fork", "forks --rounds 2 --only fork", 0, 0.65, False),
    Measure("GET of a workspace", API, 1, 0.5, True),
    Measure("list", API, 2, 0.75, True),
    Measure("edge", "edge --rounds 2 --seconds 4", 0, 0.6, True),
    Measure("files", "files --count 2 --size 64 --memory 256", 0, 0.8, True),
    Measure("terminal", "terminal --parts echo --rounds 2", 0, 2.0, False, r"([\d.]+) times a plain PTY"),
    Measure("streams", "streams --clients 100 --events 10 --disconnects 500", 0, 20.0, False, r"ratio of p99 ([\d.]+)"),
    Measure("charge", "charge --ticks 20 --seconds 4", 2, 0.3, True),
    # 0.11 to 0.28 of nginx's is what Caddy serves (docs/decisions/edge.md).
    Measure("static file", "pages --rounds 2 --seconds 2 --sites 100", 0, 0.2, True),
)


def run_benchmark(measure: Measure) -> str:
    """Return what the benchmark printed; one that fails, or takes longer than LIMIT_SECONDS, has printed no ratio."""
    command = [sys.executable, "-m", *f"benchmarks.{measure.command}".split()]
    try:
        ran = subprocess.run(
            command,
            check=False,  # its output says what failed
            env={**os.environ, "STATE": str(STATE)},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT_SECONDS} s"
    return ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr


def find_ratio(measure: Measure, printed: str) -> float | None:
    """Return the measure's ratio, or None if the benchmark did not print it."""
    found = re.findall(measure.pattern, printed)
    return float(found[measure.place]) if len(found) > measure.place else None


def show_measure(measure: Measure, printed: str, seconds: float) -> bool:
    """Print one row of the table; return whether the bar is met."""
    ratio = find_ratio(measure, printed)
    if ratio is None:
        print(f"{measure.name:<20} {'none':>7}  {measure.shown_bar:<14} failed:\n{printed}", flush=True)
        return False
    verdict = "met" if measure.is_met(ratio) else "MISSED"
    print(f"{measure.name:<20} {ratio:>7.2f}  {measure.shown_bar:<14} {verdict:<7} {seconds:5.0f} s", flush=True)
    return measure.is_met(ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(each.name for each in MEASURES))
    names = parser.parse_args().names
    chosen = [each for each in MEASURES if not names or each.name in names]
    print(f"load {os.getloadavg()[0]:.1f}\n{'measure':<20} {'ratio':>7}  {'bar':<14}", flush=True)
    printed: dict[str, str] = {}
    results = []
    for each in chosen:
        begun = time.monotonic()
        if each.command not in printed:
            printed[each.command] = run_benchmark(each)
        results.append(show_measure(each, printed[each.command], time.monotonic() - begun))
    if not all(results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
