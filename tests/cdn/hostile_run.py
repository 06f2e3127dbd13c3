"""Looks at one file as the worker does, and prints what was found and what the processes below took.

python -m tests.cdn.hostile_run <file>
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdn.inspection.messages import VariantOrder

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Run:
    """`reasons`: without and with a variant. `memory_bytes`: the largest process; `cpu_seconds`: all together."""

    reasons: list[str]
    memory_bytes: int
    cpu_seconds: float


def hostile_run(path: Path) -> Run:
    """In an interpreter of its own: what the kernel counts are the processes of this file alone."""
    command = [sys.executable, "-m", "tests.cdn.hostile_run", str(path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return Run(*json.loads(ended.stdout.splitlines()[-1]))


def main() -> None:
    from cdn.inspection.messages import VariantOrder

    path, variant = Path(sys.argv[1]), VariantOrder(-1, 64, 64, "contain", "webp", None)
    # bubblewrap ends without waiting for the process that it confines, and so without what that has taken.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    reasons = [_reason(path, ()), _reason(path, (variant,))]
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = [used.ru_maxrss * 1024, used.ru_utime + used.ru_stime]
    sys.stdout.write(json.dumps([reasons, *taken]) + "\n")


def _reason(path: Path, variants: tuple[VariantOrder, ...]) -> str:
    from cdn.inspection.messages import InspectionOrder
    from cdn.media.confinement import levels
    from cdn.media.runner import execute_inspection
    from cdn.sniffing import file_sniff

    with path.open("rb") as file, tempfile.TemporaryDirectory() as folder:
        order = InspectionOrder(file_sniff(file).content_type, to_the_end=True, variants=variants)
        outputs = [Path(folder, str(number)) for number, _ in enumerate(variants)]
        return execute_inspection(next(levels()), file.fileno(), order, outputs, lambda: None).reason


if __name__ == "__main__":
    main()
