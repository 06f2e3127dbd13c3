"""Layers of images, made from Debian's packages as builds make them: in an overlay, whose upper folder is the layer."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import IO

from tests.images.recipe import Recipe
from tests.vm.images import build_web
from vmbackend.images.build import SUITE, _host_sources
from vmbackend.locks import wait_lock

# With the run all of its processes end, and what they have mounted, however the run ends.
CONFINED = ("setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--propagation", "private")
CONFINED += ("--pid", "--fork", "--kill-child", "--")
# In mounts of its own, which end with the script: $1 root, $2 lower folders, $3 upper, $4 work, $5 apt's folder; the
# script for the image comes on the standard input.
IN_IMAGE = """set -e
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3,workdir=$4,redirect_dir=off,metacopy=off" "$1"
mount --bind "$5/lists" "$1/var/lib/apt/lists"
mount --bind "$5/archives" "$1/var/cache/apt/archives"
mount --bind /etc/resolv.conf "$1/etc/resolv.conf"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
exec chroot "$1" /bin/sh -e -s
"""
INSTALL = (
    "export DEBIAN_FRONTEND=noninteractive; apt-get -q -y --no-install-recommends install {packages} >/tmp/log 2>&1 "
)
INSTALL += "|| {{ tail -n 20 /tmp/log; exit 1; }}\nrm -f /tmp/log\n"
# Of the packages' layer: files that the layer above hides.
REMOVE = "rm -rf /usr/share/doc /usr/share/man /var/log/dpkg.log /var/log/apt\n"
NO_SERVICES = "#!/bin/sh\nexit 101\n"


class DebianLayers:
    """The base tree and apt's caches are kept in `folder`, which two runs may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = folder / "base"
        self._apt = folder / "apt"

    def prepare(self) -> None:
        """Make Debian's base tree, unless it is there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with wait_lock(self.folder / ".lock", lambda: None):
            self._make_base()

    def _make_base(self) -> None:
        for name in ("lists/partial", "archives/partial"):
            (self._apt / name).mkdir(parents=True, exist_ok=True)
        if (self.folder / "base.tar.gz").exists():
            return
        shutil.rmtree(self.base, ignore_errors=True)
        options = ["--quiet", "--mode=root", "--variant=apt", '--aptopt=Apt::Install-Recommends "false"']
        subprocess.run([*CONFINED, "mmdebstrap", *options, SUITE, str(self.base), *_host_sources()], check=True)
        (self.base / "usr/sbin/policy-rc.d").write_text(NO_SERVICES)
        (self.base / "usr/sbin/policy-rc.d").chmod(0o755)
        (self.base / "etc/resolv.conf").write_text("")
        self._run("apt-get -q update >/dev/null", [self.base], self.folder / "updating")
        pack(self.base, self.folder / "base.tar.gz")

    def make(self, recipe: Recipe, scratch: Path) -> list[Path]:
        """The layers of the recipe's image, packed, the lowest first."""
        packages, above = scratch / "packages", scratch / "above"
        with wait_lock(self.folder / ".lock", lambda: None):  # apt's own refuses a second one
            self._run(INSTALL.format(packages=" ".join(recipe.packages)), [self.base], packages)
        script = "".join(map(write_command, recipe.files.items())) + recipe.commands + "\n" + REMOVE
        self._run(script, [packages, self.base], above)
        made = [scratch / "packages.tar.gz", scratch / "above.tar.gz"]
        for tree, archive in zip((packages, above), made, strict=True):
            pack(tree, archive)
        return [self.folder / "base.tar.gz", *made]

    def _run(self, script: str, lower: list[Path], upper: Path) -> None:
        root, work = upper.with_name(f"{upper.name}-root"), upper.with_name(f"{upper.name}-work")
        for folder in (upper, root, work):
            folder.mkdir(parents=True, exist_ok=True)
        places = [str(root), ":".join(map(str, lower)), str(upper), str(work), str(self._apt)]
        argv = [*CONFINED, "sh", "-c", IN_IMAGE, "sh", *places]
        environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            argv,
            input=script,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:]


def write_command(file: tuple[str, str]) -> str:
    """The lines of a shell's script that write a file of a recipe."""
    path, text = file
    mode = "755" if text.startswith("#!") else "644"
    here = text if text.endswith("\n") else text + "\n"
    return f"mkdir -p {Path(path).parent}\ncat >{path} <<'END-OF-FILE'\n{here}END-OF-FILE\nchmod {mode} {path}\n"


def bare_layer(recipe: Recipe, scratch: Path) -> list[Path]:
    """The one layer of an image without a base."""
    tree, archive = scratch / "tree", scratch / "bare.tar.gz"
    for path, program in (recipe.bare or {}).items():
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if program == "web":
            build_web(target)
        else:
            shutil.copy("/bin/busybox", target)
    for path, text in recipe.files.items():
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if text.startswith("#!") else 0o644)
    pack(tree, archive)
    return [archive]


def pack(tree: Path, archive: Path) -> None:
    """Pack the upper folder of an overlay, or a whole tree, as a layer."""
    aside = archive.with_suffix(".new")
    with (
        gzip.open(aside, "wb", compresslevel=1) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,  # type: ignore[call-overload]
    ):
        for folder, folders, files in os.walk(tree):
            folders.sort()
            if is_opaque(folder):
                add_mark(tar, str(Path(folder, ".wh..wh..opq").relative_to(tree)))
            for name in sorted([*folders, *files]):
                add_entry(tar, tree, Path(folder, name))
    aside.replace(archive)


def is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False


def add_entry(tar: tarfile.TarFile, tree: Path, path: Path) -> None:
    status, name = path.lstat(), path.relative_to(tree)
    if stat.S_ISSOCK(status.st_mode):
        return
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
        add_mark(tar, str(name.with_name(f".wh.{name.name}")))
        return
    entry = tar.gettarinfo(path, str(name))
    content: IO[bytes] | None = path.open("rb") if entry.isreg() else None
    with content or io.BytesIO() as data:
        tar.addfile(entry, data if content else None)


def add_mark(tar: tarfile.TarFile, name: str) -> None:
    """Of what this layer removes."""
    tar.addfile(tarfile.TarInfo(name))
