"""Compiled kernels in the user's cache folder, outside any checkout, so that each is compiled once.

A kernel's name is the hash of what it was made from. A file appears there whole, and is never changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def user_cache() -> Path:
    """Return the platform's part of `XDG_CACHE_HOME`, which defaults to `~/.cache`. Not created."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "microvm-workspaces"


def cached_kernel(inputs: Iterable[Path]) -> Path:
    """Return the path of the vmlinux that is made from these files; it exists if it was built. Reads the files
    whole.
    """
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return user_cache() / "kernels" / digest.hexdigest()[:32]


def cache_kernel(vmlinux: Path, to: Path) -> None:
    """Copy a vmlinux into the cache. A cache that cannot be written is no error: the next build compiles again."""
    with suppress(OSError):
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=to.parent) as folder:
            (shutil.copyfile(vmlinux, Path(folder) / to.name)).replace(to)
