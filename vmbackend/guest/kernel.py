"""The guest's kernel: a custom one built from Debian's source package, or Debian's cloud kernel."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.guest.kernel_cache import cache_kernel, cached_kernel
from vmbackend.guest.tools import build_lock, run_tool

CONFIG = Path(__file__).parent / "microvm-kernel.config"
SOURCE = Path("/usr/src/linux-source-6.1.tar.xz")
BUILD_TIMEOUT = 3600.0 * 2  # seconds; about 8 minutes on two cores
# Modules of Debian's kernel that the kit and a machine's devices need; dependencies are resolved.
MODULES = (
    *(
        "virtio_pci",
        "virtio_blk",
        "virtio_net",
        "virtio_console",
        "virtio_rng",
        "virtio_balloon",
        "virtio_mem",
    ),
    *("qemu_fw_cfg", "squashfs", "overlay", "button", "evdev"),
)
BOOT_PAYLOAD = 0x248  # offsets of the x86 boot protocol's payload_offset and payload_length
SETUP_SECTORS = 0x1F1
PAYLOAD_SIZE_FIELD = 4  # bytes: the unpacked size, which the kernel's build appends to the compressed stream
DECOMPRESSORS = {
    b"\x02\x21\x4c\x18": ("lz4", "-dc"),
    b"\xfd7zXZ": ("xz", "-dc"),
    b"\x28\xb5\x2f\xfd": ("zstd", "-dc"),
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A bootable vmlinux and the modules to load, in load order. `identity` changes with its contents."""

    vmlinux: Path
    modules: tuple[Path, ...]
    identity: str


def custom_kernel(kit_dir: Path) -> Kernel | None:
    """Return the kernel that `build_kernel` built from the present configuration, if any."""
    stamp, vmlinux = kit_dir / "kernel/stamp.json", kit_dir / "kernel/vmlinux"
    try:
        built = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return None
    if built.get("config") != _config_hash() or not vmlinux.exists():
        return None
    return Kernel(vmlinux, (), f"own-{built['vmlinux']}")


def build_kernel(kit_dir: Path, progress: Callable[[int, str], None], *, target: str = "vmlinux") -> Path:
    """Build the custom kernel (takes minutes) unless it exists or is in the user's cache; return its vmlinux.

    `target`: the make target, for tests without a full build; only "vmlinux" is installed. The result is installed
    atomically; a build that died leaves `kernel/build`, which the next one replaces. If two calls come at once, the
    second waits, BUILD_TIMEOUT at most. Raise BackendUnavailable (no source package, a tool fails, an option was not
    accepted, another build does not end).
    """
    (kit_dir / "kernel").mkdir(parents=True, exist_ok=True)
    with build_lock(kit_dir / "kernel", BUILD_TIMEOUT):
        present = custom_kernel(kit_dir)
        if present:
            return present.vmlinux
        if not SOURCE.exists():
            raise BackendUnavailable(f"{SOURCE} is missing: install the Debian package linux-source-6.1.")
        cached = cached_kernel((CONFIG, SOURCE))
        if target == "vmlinux" and cached.exists():
            install_kernel(kit_dir, cached)
        else:
            _compile(kit_dir, cached, progress, target)
    progress(100, "The guest kernel is ready")
    return kit_dir / "kernel/vmlinux"


def _compile(kit_dir: Path, cached: Path, progress: Callable[[int, str], None], target: str) -> None:
    tree = _unpack(kit_dir / "kernel", progress)
    progress(10, "Configuring the guest kernel")
    run_tool("make", "allnoconfig", f"KCONFIG_ALLCONFIG={CONFIG}", cwd=tree)
    check_config(CONFIG.read_text(), (tree / ".config").read_text())
    progress(15, "Compiling the guest kernel (about 8 minutes on two cores)")
    run_tool("make", f"-j{os.cpu_count() or 1}", target, cwd=tree, timeout=BUILD_TIMEOUT)
    if target == "vmlinux":
        install_kernel(kit_dir, tree / "vmlinux")
        cache_kernel(tree / "vmlinux", cached)
    shutil.rmtree(tree.parent)


def install_kernel(kit_dir: Path, built: Path) -> None:
    """Install a vmlinux that was built from the present configuration. The stamp is written last."""
    folder = kit_dir / "kernel"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stamp.json").unlink(missing_ok=True)
    aside = folder / "vmlinux.new"
    shutil.copyfile(built, aside)
    aside.replace(folder / "vmlinux")
    stamp = {"config": _config_hash(), "vmlinux": hashlib.sha256(built.read_bytes()).hexdigest()[:16]}
    aside = folder / "stamp.json.new"
    aside.write_text(json.dumps(stamp))
    aside.replace(folder / "stamp.json")


def check_config(wanted: str, made: str) -> None:
    """Check that each option requested as `y` became `y`, unless this kernel does not know it.

    Raise BackendUnavailable naming the dropped options (the configuration lacks a dependency).
    """
    options = re.findall(r"^(CONFIG_\w+)=y$", wanted, re.MULTILINE)
    refused = [name for name in options if f"# {name} is not set" in made.splitlines()]
    if refused:
        raise BackendUnavailable(f"The guest kernel's configuration was not accepted: {', '.join(refused)}.")


def debian_kernel(package: Path, scratch: Path) -> Kernel:
    """Extract vmlinux and modules from an unpacked `linux-image` package. vmlinux is written to `scratch`."""
    images = sorted((package / "boot").glob("vmlinuz-*"))
    if len(images) != 1:
        raise BackendUnavailable("Debian's kernel package does not contain exactly one kernel.")
    release = images[0].name.removeprefix("vmlinuz-")
    vmlinux = scratch / "vmlinux"
    vmlinux.write_bytes(extract_vmlinux(images[0].read_bytes()))
    run_tool("depmod", "-b", str(package), release)
    return Kernel(vmlinux, _load_order(package / "lib/modules" / release, MODULES), f"debian-{release}")


def extract_vmlinux(image: bytes) -> bytes:
    """Return the ELF inside a compressed x86 kernel image. Raise BackendUnavailable if there is none."""
    offset, length = struct.unpack_from("<II", image, BOOT_PAYLOAD)
    start = (image[SETUP_SECTORS] + 1) * 512 + offset
    payload = image[start : start + length - PAYLOAD_SIZE_FIELD]
    for magic, command in DECOMPRESSORS.items():
        if payload.startswith(magic):
            vmlinux = run_tool(*command, stdin=payload)
            if vmlinux.startswith(b"\x7fELF"):
                return vmlinux
    raise BackendUnavailable("No vmlinux can be extracted from Debian's kernel image.")


def _load_order(folder: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Return modules in load order. modules.dep lists dependencies nearest first, so they are reversed."""
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[Path(path).name.split(".")[0].replace("-", "_")] = (path, rest.split())
    builtin = {Path(line).stem.replace("-", "_") for line in (folder / "modules.builtin").read_text().split()}
    ordered: dict[str, None] = {}
    for name in names:
        if name in builtin:
            continue
        if name not in needs:
            raise BackendUnavailable(f"Debian's kernel has no module {name}.")
        module, depends = needs[name]
        ordered.update(dict.fromkeys([*reversed(depends), module]))
    return tuple(folder / module for module in ordered)


def _unpack(folder: Path, progress: Callable[[int, str], None]) -> Path:
    build = folder / "build"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    progress(0, "Unpacking the kernel source")
    run_tool("tar", "-xf", str(SOURCE), "-C", str(build), "--strip-components=1", "--one-top-level=source")
    return build / "source"


def _config_hash() -> str:
    return hashlib.sha256(CONFIG.read_bytes()).hexdigest()
