"""Trees that are deeper than a path may be long."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


def fill_levels(folder: Path, levels: int, name: str = "a", file: str = "big", content: bytes = b"x") -> None:
    """`folder/name/name/...`, with a file in the last."""
    descriptor = os.open(folder, os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=descriptor), "wb") as written:
        written.write(content)
    os.close(descriptor)


@pytest.fixture
def deep_root(tmp_path: Path) -> Iterator[Path]:
    """A folder for such trees, removed by a program that can. In memory where the host allows it: thousands of folders
    take seconds on a disk."""
    parent = MEMORY if os.access(MEMORY, os.W_OK) else tmp_path
    folder = Path(tempfile.mkdtemp(prefix="mvm-deep-", dir=parent))
    yield folder
    subprocess.run(["rm", "-rf", "--", folder], check=True)
