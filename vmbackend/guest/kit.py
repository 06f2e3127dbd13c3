"""The guest kit: kernel and initramfs of every machine, from Debian packages and the sources beside it.

A kit directory contains `current.json` (the current version and its inputs), one directory per version (kept: saved
machines refer to the files they were started from), `debs/` (downloaded packages) and `kernel/` (the custom kernel).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.guest import initramfs
from vmbackend.guest.kernel import MODULES, Kernel, build_kernel, custom_kernel, debian_kernel
from vmbackend.guest.tools import build_lock, run_tool

__all__ = ["KERNEL_ARGS", "Kit", "build_kernel", "build_kit", "find_kit"]

# Skips checks of timer and TSC: 65 ms of a boot under emulation, and a TSC that seems unstable on a busy host would be
# replaced by a clock that costs a VM exit per reading.
KERNEL_ARGS = "console=ttyS0 quiet panic=-1 8250.nr_uarts=1 cryptomgr.notests tsc=reliable no_timer_check"
BUILD_SECONDS = 900.0  # how long a build waits for another, which takes seconds; a slow download, minutes
KERNEL_PACKAGE = "linux-image-cloud-amd64"
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Kit:
    """The kernel and initramfs that machines are started with."""

    kernel: Path
    initrd: Path
    version: str

    @property
    def search(self) -> Path:
        """Return the folder of the search program and its libraries, which machines get with their first search."""
        return self.initrd.with_name("search")


def find_kit(kit_dir: Path) -> Kit:
    """Return the current kit. Raise BackendUnavailable, with the command to run, if there is none."""
    try:
        current = json.loads((kit_dir / "current.json").read_text())
        kit = _kit(kit_dir, current["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackendUnavailable("The guest kit is not built: run `manage.py guest_kit`.") from error
    if not kit.kernel.exists() or not kit.initrd.exists():
        raise BackendUnavailable("The guest kit is damaged: run `manage.py guest_kit`.")
    return kit


def build_kit(kit_dir: Path, progress: Callable[[int, str], None], *, refresh: bool = False) -> Kit:
    """Build the kit unless the current one is up to date (then it takes milliseconds).

    Debian packages are downloaded once; `refresh` downloads their newest versions. The new kit becomes current
    atomically, the old one stays until then and on failure. Concurrent calls wait for each other.
    Raise BackendUnavailable, also if another build takes longer than BUILD_SECONDS.
    """
    kit_dir.mkdir(parents=True, exist_ok=True)
    with _locked(kit_dir):
        kernel = custom_kernel(kit_dir)
        wanted = {"sources": _sources_hash(), "kernel": kernel.identity if kernel else "debian"}
        if not refresh and _is_current(kit_dir, wanted):
            progress(100, "The guest kit is up to date")
            return find_kit(kit_dir)
        with tempfile.TemporaryDirectory(prefix="build-", dir=kit_dir) as scratch:
            return _build(kit_dir, Path(scratch), kernel, wanted, progress=progress, refresh=refresh)


def _build(
    kit_dir: Path,
    scratch: Path,
    kernel: Kernel | None,
    wanted: dict[str, str],
    *,
    progress: Callable[[int, str], None],
    refresh: bool,
) -> Kit:
    progress(5, "Fetching the kit's Debian packages")
    debs = _fetch(kit_dir / "debs", initramfs.PACKAGES if kernel else (*initramfs.PACKAGES, _image_package()), refresh)
    progress(40, "Unpacking")
    for deb in debs:
        run_tool("dpkg", "-x", str(deb), str(scratch / "root"))
    kernel = kernel or debian_kernel(scratch / "root", scratch)
    progress(60, "Compiling and assembling the initramfs")
    initrd = initramfs.build_initramfs(FOLDER / "src", scratch / "root", scratch, kernel.modules)
    names = [deb.name for deb in debs]
    version = _hash(json.dumps([wanted["sources"], kernel.identity, names]).encode())[:16]
    _install(kit_dir, version, kernel.vmlinux, initrd)
    _install_search(kit_dir / version, initramfs.search_files(scratch / "root"))
    _write_json(kit_dir / "current.json", {"version": version, "debs": names, **wanted})
    progress(100, "The guest kit is ready")
    return _kit(kit_dir, version)


def _kit(kit_dir: Path, version: str) -> Kit:
    return Kit(kit_dir / version / "vmlinux", kit_dir / version / "initrd", version)


def _is_current(kit_dir: Path, wanted: dict[str, str]) -> bool:
    try:
        find_kit(kit_dir)
        current = json.loads((kit_dir / "current.json").read_text())
    except BackendUnavailable:
        return False
    return all(current.get(key) == value for key, value in wanted.items())


def _fetch(cache: Path, packages: tuple[str, ...], refresh: bool) -> list[Path]:
    """Return one .deb per package, from the cache or from apt."""
    cache.mkdir(exist_ok=True)
    missing = [name for name in packages if refresh or not list(cache.glob(f"{name}_*.deb"))]
    if missing:
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as folder:
            run_tool("apt-get", "download", *missing, cwd=Path(folder))
            for deb in sorted(Path(folder).glob("*.deb")):
                for old in cache.glob(f"{deb.name.split('_')[0]}_*.deb"):
                    old.unlink()
                deb.rename(cache / deb.name)
    debs = [path for name in sorted(packages) for path in cache.glob(f"{name}_*.deb")]
    if len(debs) != len(packages):
        raise BackendUnavailable("apt-get did not download every package of the guest kit: run `apt-get update`.")
    return debs


def _image_package() -> str:
    """Return the package that the cloud kernel's meta package depends on at present."""
    for line in run_tool("apt-cache", "depends", KERNEL_PACKAGE).decode().splitlines():
        name = line.rpartition(" ")[2]
        if "Depends:" in line and name.startswith("linux-image-"):
            return name
    raise BackendUnavailable(f"apt knows no {KERNEL_PACKAGE}: run `apt-get update`.")


def _install(kit_dir: Path, version: str, vmlinux: Path, initrd: bytes) -> None:
    """Install a version that nothing refers to yet: an incomplete directory of an earlier run is overwritten."""
    folder = kit_dir / version
    folder.mkdir(exist_ok=True)
    # Read by every machine's process, and nothing in them is secret.
    folder.chmod(0o755)
    for name, data in (("vmlinux", vmlinux.read_bytes()), ("initrd", initrd)):
        aside = folder / f"{name}.new"
        aside.write_bytes(data)
        aside.chmod(0o644)
        aside.replace(folder / name)


def _install_search(folder: Path, files: dict[str, Path]) -> None:
    """Install the search program; only the platform itself reads these files."""
    (folder / "search").mkdir(mode=0o700, exist_ok=True)
    for name, path in files.items():
        aside = folder / "search" / f"{name}.new"
        shutil.copyfile(path, aside)
        aside.replace(aside.with_suffix(""))


def _sources_hash() -> str:
    files = [*sorted((FOLDER / "src").iterdir()), *(FOLDER / name for name in ("initramfs.py", "cpio.py"))]
    parts = [path.name.encode() + b"\0" + path.read_bytes() for path in files]
    return _hash(b"\0".join([*parts, " ".join((*initramfs.PACKAGES, *MODULES)).encode()]))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_json(path: Path, value: dict[str, object]) -> None:
    aside = path.with_name(path.name + ".new")
    aside.write_text(json.dumps(value, indent=1))
    aside.replace(path)


@contextmanager
def _locked(kit_dir: Path) -> Iterator[None]:
    """Lock the kit directory against other builders."""
    with build_lock(kit_dir, BUILD_SECONDS):
        for stale in (*kit_dir.glob("build-*"), *kit_dir.glob("debs/fetch-*")):
            shutil.rmtree(stale, ignore_errors=True)
        yield
