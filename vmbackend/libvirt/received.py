"""The files of a snapshot that another host sent, which may be hostile: they are what this host would have written, or
are refused.

A snapshot's raw layer is bytes to everything, and its memory a stream that a confined QEMU reads under a definition of
this host (`save_file.forget_description`). A qcow2 header is read by QEMU and by confined tools, which are told the
whole chain and follow no backing file in it. A data file they would open, if they could reach it. Neither is accepted.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmbackend.libvirt.disks import DISK_MAX_MB, DISK_MIN_MB, MIB, overlay_overhead_mb
from vmbackend.libvirt.layers import LAYERS_MAX
from vmbackend.libvirt.record import Layer
from vmbackend.libvirt.save_file import checksum_of, forget_description
from vmbackend.libvirt.store import FORMAT, MANIFEST, MEMORY
from vmbackend.plain_files import open_plain, read_object, require_plain, take_over

_MANIFEST_MAX = 64 << 10
_FACTS = frozenset({"format", "needs", "memory_bytes", "memory_crc32", "made_at", "layers", "disk_mb"})
_NUMBERS = {"cpus": 1 << 12, "memory_mb": 1 << 24, "qemu": 1 << 40, "libvirt": 1 << 40, "base_bytes": 1 << 50}
_WORDS = {
    "shape": re.compile(r"[0-9a-f]{64}"),
    "cpu": re.compile(r"[0-9a-f]{16}"),
    "machine": re.compile(r"(pc-)?q35(-[0-9.]{1,16})?"),
    "accelerator": re.compile(r"kvm|qemu"),
    "image": re.compile(r"sha256:[0-9a-f]{64}"),
    "base": re.compile(r"[0-9a-f]{32}"),
    "kit": re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"),
}
# What an interrupted rsync leaves of a file.
_UNFINISHED = re.compile(r"\.(memory|manifest\.json|disk-\d\.(raw|qcow2))\.[A-Za-z0-9]{6}")

# Magic, version, offset and bytes of the name of a backing file, bits of a cluster, bytes of the disk, encryption, four
# words of tables, number and offset of snapshots, three sets of features, bits of a count, bytes of the header.
_QCOW2 = struct.Struct(">4sIQIIQI I2QI IQ 3Q II")
_QCOW2_MAGIC = b"QFI\xfb"


@dataclass(frozen=True, slots=True)
class ReceivedSnapshot:
    """The facts of a manifest, each checked."""

    needs: dict[str, Any]
    memory_bytes: int
    memory_crc32: int
    made_at: float
    layers: tuple[Layer, ...]
    disk_mb: int

    @property
    def files(self) -> frozenset[str]:
        """Return the names of the files besides the manifest."""
        return frozenset(layer.file for layer in self.layers) | ({MEMORY} if self.memory_bytes else set())


def accept_files(folder: Path) -> ReceivedSnapshot:
    """Check all files of a folder, and make them this host's own. Raise ValueError, which says why not; OSError.

    The manifest is removed then: this host writes another. The memory is loadable under definitions of this host alone.
    """
    _remove_unfinished(folder)
    found = read_manifest(folder / MANIFEST)
    require_plain(folder, found.files | {MANIFEST})
    take_over(folder, 0o700)
    for name in found.files:
        take_over(folder / name, 0o400 if name == MEMORY else 0o444)
    for layer in found.layers:
        _check_layer(folder / layer.file, layer.format, found.disk_mb)
    if found.memory_bytes:
        _accept_memory(folder / MEMORY, found)
    (folder / MANIFEST).unlink()
    return found


def read_manifest(path: Path) -> ReceivedSnapshot:
    """Return the facts of a manifest. Raise ValueError, OSError."""
    raw = read_object(path, _MANIFEST_MAX)
    if raw.keys() != _FACTS or raw["format"] != FORMAT:
        raise ValueError("the manifest is not of this version")
    size = _number(raw, "memory_bytes", 0, 1 << 45)
    return ReceivedSnapshot(
        needs=read_needs(raw["needs"]) if size else {},
        memory_bytes=size,
        memory_crc32=_number(raw, "memory_crc32", 0, (1 << 32) - 1),
        made_at=_moment(raw["made_at"]),
        layers=_read_layers(raw["layers"]),
        disk_mb=_number(raw, "disk_mb", DISK_MIN_MB, DISK_MAX_MB),
    )


def read_needs(raw: object) -> dict[str, Any]:
    """Return the needs of memory that another host wrote. Raise ValueError unless each is one that this host writes."""
    if not isinstance(raw, Mapping) or raw.keys() != _NUMBERS.keys() | _WORDS.keys():
        raise ValueError("the needs of the memory are not of this version")
    for name, largest in _NUMBERS.items():
        _number(raw, name, 1, largest)
    for name, pattern in _WORDS.items():
        if not isinstance(raw[name], str) or not pattern.fullmatch(raw[name]):
            raise ValueError(f"the needs of the memory have no plausible {name}")
    return dict(raw)


def check_header(head: bytes, disk_mb: int) -> None:
    """Raise ValueError unless a qcow2 file begins as those of this host: without any other file, or secret."""
    if len(head) < _QCOW2.size:
        raise ValueError("a layer of the disk ends within its header")
    magic, version, *rest = _QCOW2.unpack(head[: _QCOW2.size])
    backing_at, backing_bytes, cluster_bits, size, encryption, _, _, _, _, snapshots, _, *features, _, length = rest
    if (magic, version) != (_QCOW2_MAGIC, 3) or not 104 <= length <= 4096 or not 9 <= cluster_bits <= 21:
        raise ValueError("a layer of the disk is not in a known format")
    if backing_at or backing_bytes:
        raise ValueError("a layer of the disk names another file")
    if any(features) or encryption or snapshots:
        raise ValueError("a layer of the disk has features that no host gives it")
    if not 0 < size <= disk_mb * MIB:
        raise ValueError("a layer of the disk is larger than the disk")


def _number(raw: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = raw[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is not plausible")
    return value


def _moment(value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value < 1 << 40:  # type: ignore[arg-type, operator]
        raise ValueError("made_at is not plausible")
    return float(value)  # type: ignore[arg-type]


def _read_layers(raw: object) -> tuple[Layer, ...]:
    """Return the layers: one raw file, and qcow2 files above it. One more is made for each machine."""
    if not isinstance(raw, list) or not 1 <= len(raw) < LAYERS_MAX:
        raise ValueError("the disk has no plausible number of layers")
    kinds = ["raw", *["qcow2"] * (len(raw) - 1)]
    layers = tuple(Layer(f"disk-{number}.{kind}", kind) for number, kind in enumerate(kinds))
    if raw != [{"file": layer.file, "format": layer.format} for layer in layers]:
        raise ValueError("the layers of the disk do not have the names and formats of a host's")
    return layers


def _check_layer(path: Path, kind: str, disk_mb: int) -> None:
    descriptor = open_plain(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        largest = disk_mb + (overlay_overhead_mb(disk_mb) if kind == "qcow2" else 0)
        if not 0 < size <= largest * MIB:
            raise ValueError("a layer of the disk has no plausible size")
        if kind == "qcow2":
            check_header(os.pread(descriptor, _QCOW2.size, 0), disk_mb)
    finally:
        os.close(descriptor)


def _accept_memory(path: Path, found: ReceivedSnapshot) -> None:
    if path.lstat().st_size != found.memory_bytes:
        raise ValueError("the memory has another size than its manifest says")
    if checksum_of(path) != (found.memory_bytes, found.memory_crc32):
        raise ValueError("the memory has another checksum than its manifest says")
    descriptor = open_plain(path, os.O_RDWR)
    try:
        forget_description(descriptor)
    finally:
        os.close(descriptor)


def _remove_unfinished(folder: Path) -> None:
    for entry in list(os.scandir(folder)):
        if _UNFINISHED.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False):
            Path(entry.path).unlink()
