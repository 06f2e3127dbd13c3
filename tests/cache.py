"""Where the tests keep what takes minutes to build: kits and images, outside the checkout and named by content.

`python -m tests.cache` builds the small guest kernel there (`make test-kernel`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from vmbackend.guest import kernel, kit
from vmbackend.guest.kernel_cache import user_cache

KEEP_DAYS = 30


def _name() -> str:
    """The hash of what kits of this checkout are made from, so that checkouts do not replace each other's."""
    files = (*sorted((kit.FOLDER / "src").iterdir()), *sorted(kit.FOLDER.glob("*.py")), kernel.CONFIG)
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


CACHE = Path(os.environ.get("PLATFORM_CACHE_DIR") or user_cache())
KIT_DIR = CACHE / "kits" / _name()
DEBIAN_KIT_DIR = KIT_DIR.with_name(f"{KIT_DIR.name}-debian")  # never with the own kernel


def use_kit_dir(kit_dir: Path = KIT_DIR) -> Path:
    """The kit directory, marked as used now; those that no test run has used for KEEP_DAYS are removed."""
    kit_dir.mkdir(parents=True, exist_ok=True)
    os.utime(kit_dir)
    remove_unused(kit_dir.parent)
    return kit_dir


def remove_unused(folder: Path, days: int = KEEP_DAYS) -> None:
    """Remove the files and folders directly in a folder that no test run has marked as used for so many days."""
    oldest = time.time() - days * 86400
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):  # another run removed it
            if entry.stat().st_mtime >= oldest:
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


def main() -> None:
    def progress(percent: int, text: str) -> None:
        sys.stdout.write(f"{percent:3d}% {text}\n")
        sys.stdout.flush()

    folder = use_kit_dir()
    kernel.build_kernel(folder, progress)
    kit.build_kit(folder, progress)


if __name__ == "__main__":
    main()
