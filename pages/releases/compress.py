"""Compressed copies of the files of a release, made once so that the edge compresses nothing itself.

The copies are made by processes of our own (`compress_worker.py`). A copy is optional: if it takes too long or too much
memory its process ends, and the release goes live without it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pages.releases.manifest import ENCODINGS
from pages.releases.names import COMPONENT_BYTES

# Text, and formats that shrink as well as text.
_ENDINGS = """
html htm xhtml css js mjs cjs json jsonld map svg xml txt md markdown csv tsv webmanifest wasm rss atom ics
vtt srt yaml yml ttf otf eot glb gltf
"""
COMPRESSED = frozenset(_ENDINGS.split())
LEAST_BYTES = 1024
# A longer name has no room for the ending of a copy.
NAME_BYTES = COMPONENT_BYTES - max(len(f".{name}") for name in ENCODINGS)
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class CompressLimits:
    """Limits of compression. `memory_bytes` is the limit of each process's data segment."""

    processes: int = 2
    seconds: float = 120.0
    memory_bytes: int = 768 << 20


DEFAULT_LIMITS = CompressLimits()


def is_compressed(path: str, size: int) -> bool:
    """Return whether copies of a file are worth a try."""
    name = path.rpartition("/")[2]
    _, dot, ending = name.rpartition(".")
    is_text = dot == "." and ending.lower() in COMPRESSED
    return size > LEAST_BYTES and is_text and len(name.encode()) <= NAME_BYTES


def make_copies(
    public: Path, jobs: Iterable[tuple[str, int]], limits: CompressLimits = DEFAULT_LIMITS
) -> dict[str, dict[str, int]]:
    """Make `<path>.br`, `.zst` and `.gz` beside each file (path and size), if the copy saves a tenth.

    Return the sizes of the copies by path and encoding. A path that is missing was not tried to the end. Raise OSError.
    No process outlives the call, nor the caller.
    """
    shares = _shares(jobs, limits.processes)
    workers = [_Worker(public, share, limits) for share in shares]
    try:
        deadline = time.monotonic() + limits.seconds
        for worker in workers:
            worker.wait_until(deadline)
    finally:
        for worker in workers:
            worker.end()
    return {path: copies for worker in workers for path, copies in worker.copies().items()}


def _shares(jobs: Iterable[tuple[str, int]], processes: int) -> list[list[str]]:
    """Return the paths for each process: large files first, each to the process with the least work."""
    shares: list[tuple[int, list[str]]] = [(0, []) for _ in range(max(1, processes))]
    for path, size in sorted(jobs, key=lambda job: -job[1]):
        place = min(range(len(shares)), key=lambda number: shares[number][0])
        shares[place] = (shares[place][0] + size, [*shares[place][1], path])
    return [paths for _, paths in shares if paths]


class _Worker:
    """Process with files for its input and output: pipes would need threads."""

    def __init__(self, public: Path, paths: list[str], limits: CompressLimits) -> None:
        self._public = public
        self._paths = paths
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `copies`
        command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "pages.releases.compress_worker"]
        with tempfile.TemporaryFile() as jobs:
            jobs.write("".join(json.dumps(path) + "\n" for path in paths).encode())
            jobs.seek(0)
            self._process = subprocess.Popen(
                [*command, str(public), str(limits.memory_bytes)],
                stdin=jobs,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                env={"PYTHONPATH": str(_ROOT), "PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                start_new_session=True,
            )

    def wait_until(self, deadline: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def copies(self) -> dict[str, dict[str, int]]:
        """Return the copies that were reported whole. Copies of other files, which may be incomplete, are removed."""
        with self._output:
            self._output.seek(0)
            made = dict(_report_of(line) for line in self._output if line.endswith(b"\n"))
        for path in self._paths:
            if path not in made:
                for encoding in ENCODINGS:
                    (self._public / f"{path}.{encoding}").unlink(missing_ok=True)
        return made


def _report_of(line: bytes) -> tuple[str, dict[str, int]]:
    path, copies = json.loads(line)
    checked: dict[str, Any] = copies
    return path, checked
