"""C programs of the tests, compiled once: kept in the cache of the tests, named by what they are made from."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.cache import CACHE, remove_unused

PROGRAMS = CACHE / "programs"
COMPILER = "musl-gcc"


def compile_program(target: Path, flags: Sequence[str], sources: Iterable[Path], headers: Path | None = None) -> None:
    """Put a program at `target`, a copy of its own: tests find processes by it. `headers`: a folder that is searched.

    Processes that want one program at once wait for the first. Raises CalledProcessError where it cannot be compiled.
    """
    sources = list(sources)
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    kept = PROGRAMS / _program_name(flags, sources, headers)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            new = kept.with_suffix(".new")
            search = ["-I", str(headers)] if headers else []
            subprocess.run([COMPILER, *flags, *search, "-o", str(new), *map(str, sources)], check=True)
            new.replace(kept)
        os.utime(kept)
        os.utime(kept.with_suffix(".lock"))
        shutil.copy(kept, target)
    remove_unused(PROGRAMS)


def _program_name(flags: Sequence[str], sources: Sequence[Path], headers: Path | None) -> str:
    version = subprocess.run([COMPILER, "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(version + "\0".join(flags).encode())
    included = sorted(headers.glob("*.h")) if headers else []
    for path in (*sources, *included):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]
