"""Facts that saved memory needs of a host, and how a host differs from them."""

from __future__ import annotations

import hashlib
import os
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from vmbackend.copies import Difference
from vmbackend.libvirt.identity import identity_values, shape_of, size_of
from vmbackend.libvirt.settings import LibvirtSettings

_CPUINFO = Path("/proc/cpuinfo")
_CPU_FACTS = ("vendor_id", "model name", "microcode", "flags")
_MISSING = "missing"


def memory_needs(connection: Any, definition: str) -> dict[str, Any]:
    """Return all that decides whether memory can be loaded: the devices, and what runs them."""
    base = dict(identity_values(definition)).get("base", "")
    return {
        "cpus": size_of(definition)[0],
        "memory_mb": size_of(definition)[1],
        "shape": hashlib.sha256(shape_of(definition).encode()).hexdigest(),
        "qemu": connection.getVersion(),
        "libvirt": connection.getLibVersion(),
        "cpu": _cpu(),
        "base_bytes": Path(base).stat().st_size,
    }


def snapshot_needs(connection: Any, definition: str, image: str) -> dict[str, Any]:
    """Return the needs of memory whose programs run: also their image, by its bytes, and the kit. Raises OSError."""
    domain = ET.fromstring(definition)  # noqa: S314 - libvirt's own output
    return memory_needs(connection, definition) | {
        "machine": _machine(definition),
        "accelerator": domain.get("type", ""),
        "image": image,
        "base": _hash_of(Path(dict(identity_values(definition))["base"])),
        "kit": Path(domain.findtext("os/kernel") or "").parent.name,
    }


def differences(
    needs: dict[str, Any], connection: Any, settings: LibvirtSettings, accelerator: str
) -> tuple[Difference, ...]:
    """Return how the host, as it is now, differs from what a snapshot's memory needs. Raises libvirt.libvirtError."""
    image = settings.images.get(needs["image"])
    host_base = _hash_of(image.rootfs) if image is not None and image.rootfs.exists() else _MISSING
    kit = needs["kit"] if any((settings.kit_dir / needs["kit"]).glob("*")) else _MISSING
    found = (
        ("version of QEMU", _version(needs["qemu"]), _version(connection.getVersion())),
        ("version of libvirt", _version(needs["libvirt"]), _version(connection.getLibVersion())),
        ("processor", needs["cpu"], _cpu()),
        ("accelerator", needs["accelerator"], accelerator),
        ("guest kit", needs["kit"], kit),
        ("files of the image", needs["base"], host_base),
    )
    return tuple(Difference(what, snapshot, host) for what, snapshot, host in found if snapshot != host)


def _machine(definition: str) -> str:
    kind = ET.fromstring(definition).find("os/type")  # noqa: S314 - libvirt's own output
    return kind.get("machine", "") if kind is not None else ""


def _version(number: int) -> str:
    """Return a version as libvirt counts it: millions, thousands, ones."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def _hash_of(path: Path) -> str:
    found = path.stat()
    return _hash_file(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=256)
def _hash_file(path: Path, *_facts: int) -> str:
    """Return a hash of the file, which is read again only if its facts change."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


@cache
def _cpu() -> str:
    """Return the host's processor, as far as a guest sees it."""
    first = _CPUINFO.read_text().split("\n\n", 1)[0]
    facts = [line for line in first.splitlines() if line.split("\t", 1)[0].strip() in _CPU_FACTS]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
