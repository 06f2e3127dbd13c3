"""Looks at one file as the worker does, and prints what was found and what the processes below took.

python -m tests.cdn.hostile_run <file> <with or without variants> <level>
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """`memory_bytes`: the largest process; `cpu_seconds`: all of them together."""

    content_type: str
    reason: str
    width: int | None
    memory_bytes: int
    cpu_seconds: float


def hostile_run(path: Path, *, variants: bool, level: str = "OWN_USER") -> Run:
    """In an interpreter of its own: what the kernel counts are the processes of this file alone."""
    command = [sys.executable, "-m", "tests.cdn.hostile_run", str(path), "1" if variants else "", level]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return Run(*json.loads(ended.stdout.splitlines()[-1]))


def main() -> None:
    from cdn.inspection.messages import InspectionOrder, VariantOrder
    from cdn.media import runner
    from cdn.media.confinement import Level
    from cdn.sniffing import file_sniff

    path, level = Path(sys.argv[1]), Level[sys.argv[3]]
    variants = (VariantOrder(-1, 64, 64, "contain", "webp", None),) if sys.argv[2] else ()
    with path.open("rb") as file, tempfile.TemporaryDirectory() as folder:
        order = InspectionOrder(file_sniff(file).content_type, to_the_end=True, variants=variants)
        outputs = [Path(folder, str(number)) for number, _ in enumerate(variants)]
        found = runner.inspection_execute(level, file.fileno(), order, outputs, lambda: None)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = [used.ru_maxrss * 1024, used.ru_utime + used.ru_stime]
    sys.stdout.write(json.dumps([found.content_type, found.reason, found.width, *taken]) + "\n")


if __name__ == "__main__":
    main()
