"""Images of busybox and programs of this host, with the libraries that they load; kept in the cache of the tests."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.cache import CACHE

from .libvirt_factory import busybox_image


def image_with(program: Path) -> Path:
    """The image of a machine that has this program in /bin. Built once; concurrent processes wait for each other."""
    files = [program, *libraries_of(program)]
    base = busybox_image(CACHE)
    digest = hashlib.sha256(base.name.encode() + b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files))
    image = CACHE / f"{program.name}-{digest.hexdigest()[:16]}.squashfs"
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.exists():
            _build(base, files, image)
    return image


def libraries_of(program: Path) -> list[Path]:
    """The files that are loaded with a program, the loader among them, by the paths that it knows."""
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", listed)]


def _build(base: Path, files: list[Path], image: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        root = Path(name) / "root"
        subprocess.run(["unsquashfs", "-q", "-n", "-d", str(root), str(base)], check=True, stdout=subprocess.DEVNULL)
        for number, file in enumerate(files):
            target = root / ("bin" / Path(file.name) if number == 0 else file.relative_to("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        partial = Path(name) / "image"
        command = ["mksquashfs", str(root), str(partial), "-quiet", "-noappend", "-all-root", "-no-progress"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        partial.replace(image)
