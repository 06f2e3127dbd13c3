"""A machine's image with this host's git, its SSH client and busybox, so that a guest can be both client and server."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

PROGRAMS = [
    "/usr/bin/git",
    "/usr/bin/ssh",
    "/usr/lib/git-core/git-remote-http",
    "/usr/lib/git-core/git-http-backend",
]
LINKS = {
    "/usr/bin/git-upload-pack": "git",
    "/usr/bin/git-receive-pack": "git",
    "/usr/lib/git-core/git": "/usr/bin/git",
    "/usr/lib/git-core/git-upload-pack": "/usr/bin/git",
    "/usr/lib/git-core/git-receive-pack": "/usr/bin/git",
}


def git_image(cache: Path) -> Path:
    """Built once; concurrent processes wait for each other."""
    cache.mkdir(parents=True, exist_ok=True)
    image = cache / f"git-{git_version()}.squashfs"
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.exists():
            with tempfile.TemporaryDirectory(dir=cache) as name:
                _build(Path(name)).replace(image)
    return image


def git_version() -> str:
    """Of what is in the image."""
    digest = hashlib.sha256()
    for path in sorted({"/bin/busybox", __file__, *PROGRAMS, *_libraries()}):
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()[:16]


def add_git_files(root: Path) -> None:
    """The image's files, in a folder."""
    for name in ("bin", "proc", "sys", "dev", "run", "tmp", "etc", "root", "var", "usr/bin", "usr/lib/git-core"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    applets = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True)
    for applet in set(applets.stdout.split()) - {"busybox"}:
        (root / "bin" / applet).symlink_to("busybox")
    for path in {*PROGRAMS, *_libraries()}:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name, target in LINKS.items():
        (root / name.lstrip("/")).symlink_to(target)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")


def _build(folder: Path) -> Path:
    root = folder / "root"
    add_git_files(root)
    image = folder / "base.squashfs"
    command = ["mksquashfs", str(root), str(image), "-quiet", "-noappend", "-all-root", "-no-progress"]
    subprocess.run([*command, "-comp", "gzip", "-Xcompression-level", "1"], check=True, stdout=subprocess.DEVNULL)
    return image


def _libraries() -> set[str]:
    """Of the programs, by the paths that their loader uses."""
    listed = subprocess.run(["ldd", *PROGRAMS], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(/\S+) \(0x", listed))
