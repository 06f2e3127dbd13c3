"""The chain of files that a machine's disk consists of: changes of it, and what a death leaves of them.

A change makes the new files, writes the record, changes the definition and removes the files that are not needed any
more, in this order. The new chain shows at first what the old one does, so after a death in between either is right:
`settle` takes what a process uses, or otherwise what the record says, and removes the rest.

The definition names each file and its format. A machine's process may have written the header of any of them, so
nothing that runs as root ever reads one.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, BackendUnavailable
from vmbackend.libvirt import disks, domain
from vmbackend.libvirt.identity import encode_chain, has_values, identity_values, rename_values
from vmbackend.libvirt.process import run_tool
from vmbackend.libvirt.record import Chain, Layer, MachineDir, Record

log = logging.getLogger(__name__)

# The most files of one disk: each read of a block may have to look into every one.
LAYERS_MAX = 4
# As the guest has it.
DATA_DISK = "vdb"
# Of all files of a machine's disk, whole and partial ones.
_DISK_FILES = "data*"
_INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


def new_layer(kind: str) -> Layer:
    """Return a layer of a name that no file of the machine has had."""
    return Layer(f"data-{secrets.token_hex(6)}.{kind}", kind)


def disk_bytes(files: MachineDir) -> int:
    """Return the size of the machine's disk as its guest sees it; 0 without a disk."""
    record = files.read_record()
    if record is None or record.chain.top.format == "raw":
        top = files.top_disk()
        return top.stat().st_size if top.exists() else 0
    return record.disk_mb * disks.MIB


def allocated_bytes(files: MachineDir) -> int:
    """Return the bytes that all files of the machine's disk occupy, also those that it shares."""
    return sum(disks.allocated_bytes(path) for path in files.path.glob(_DISK_FILES))


def add_overlay(files: MachineDir, chain: Chain, disk_mb: int) -> Chain:
    """Return the chain with a new, empty file of this size above it. Raises BackendUnavailable, OSError.

    It has the time of the file below, by which saved memory knows the disk again.
    """
    layer = new_layer("qcow2")
    path = files.path / layer.file
    run_tool(["qemu-img", "create", "-q", "-f", "qcow2", str(path), f"{disk_mb}M"])
    path.chmod(0o600)
    # The record that names it may be on the disk before it otherwise.
    disks.sync_file(path)
    keep_time(files.path / chain.top.file, path)
    return replace(chain, layers=(*chain.layers, layer))


def keep_time(source: Path, target: Path) -> None:
    """Give a file that shows what another one does the time of the other's last change."""
    found = source.stat()
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def freeze_file(path: Path) -> None:
    """Make a layer one that no machine's process opens for writing again, and that each may read who reaches it."""
    os.chown(path, 0, 0, follow_symlinks=False)
    path.chmod(0o444)


def link_layers(
    layers: tuple[Layer, ...], source: Path, target: Path, name: Callable[[int, Layer], Layer]
) -> tuple[Layer, ...]:
    """Link the files of a disk into another folder, under the names that `name` gives; return them. Raises OSError."""
    linked = tuple(name(number, layer) for number, layer in enumerate(layers))
    for layer, link in zip(layers, linked, strict=True):
        os.link(source / layer.file, target / link.file, follow_symlinks=False)
    return linked


def chain_values(files: MachineDir, chain: Chain, path_for: Callable[[Path], Path]) -> dict[str, str]:
    """Return the values of the chain in a definition, see `identity`."""
    lower = [(layer.format, str(path_for(files.path / layer.file))) for layer in reversed(chain.layers[:-1])]
    return {
        "data": str(path_for(files.path / chain.top.file)),
        "chain": encode_chain(chain.top.format, lower),
    }


class Layers:
    """The chains of one instance's machines. `path_for`: the path of a machine's file for its process."""

    def __init__(self, path_for: Callable[[Path], Path]) -> None:
        self._path_for = path_for

    def values(self, files: MachineDir, chain: Chain) -> dict[str, str]:
        """Return the values of the chain in the machine's definition."""
        return chain_values(files, chain, self._path_for)

    def change(self, connection: Any, target: Any, files: MachineDir, record: Record) -> Record:
        """Make the record's chain that of the machine, whose process, if any, uses it; return the record.

        Everything else is as it was recorded meanwhile. Raises BackendError, also if a settlement or the machine's
        removal came before.
        """
        with files.changing():
            known = files.read_record()
            if known is None or not (files.path / record.chain.top.file).exists():
                raise BackendUnavailable("The machine's new disk was removed meanwhile.")
            record = replace(known, chain=record.chain)
            files.write_record(record)
            self.define(connection, target, files, record)
            remove_others(files, record.chain)
        return record

    def define(self, connection: Any, target: Any, files: MachineDir, record: Record) -> None:
        """Write the chain into the machine's definition, if it has one. Idempotent. Raises BackendError."""
        if target is None:
            return
        with domain.translate_errors("describe"):
            xml = target.XMLDesc(_INACTIVE)
        wanted = self.values(files, record.chain)
        if not has_values(xml, wanted):
            domain.define_domain(connection, rename_values(xml, wanted))

    def settle(self, connection: Any, target: Any, files: MachineDir) -> None:
        """End what a change of the chain has begun, after a failure or a death. Raises BackendError."""
        if files.read_record() is not None and has_process(target):
            abort_copy(target)  # asks the process, which may not answer: not with the lock
        with files.changing():
            self._settle(connection, target, files)

    def _settle(self, connection: Any, target: Any, files: MachineDir) -> None:
        record = files.read_record()
        if record is None:
            return
        if has_process(target):
            known, record = record, replace(record, chain=_used_chain(target, record.chain))
            if record != known:
                files.write_record(record)
        self.define(connection, target, files, record)
        remove_others(files, record.chain)

    def settle_all(self, connection: Any, domains: domain.Domains, directories: Iterable[MachineDir]) -> None:
        """Settle every machine of a former process; what fails is logged, and hinders no other machine."""
        for files in directories:
            try:
                self.settle(connection, domains.find_or_none(connection, files.id), files)
            except BackendError as error:
                log.error("machine %s: its disk could not be settled: %s", files.id, error)


def has_process(target: Any | None) -> bool:
    """Return whether the machine runs or is paused. Raises BackendError."""
    return target is not None and domain.state_of(target) in (MachineState.RUNNING, MachineState.PAUSED)


def abort_copy(target: Any) -> None:
    """End a copy of the disk that nobody waits for; the machine keeps the disk that it has."""
    with suppress(libvirt.libvirtError):
        if target.blockJobInfo(DATA_DISK):
            target.blockJobAbort(DATA_DISK)


def is_stale(files: MachineDir, chain: Chain) -> bool:
    """Return whether nothing but this machine has the files below the one that it writes, such as snapshots do."""
    try:
        links = [(files.path / layer.file).lstat().st_nlink for layer in chain.layers[:-1]]
    except OSError:
        return False  # it is changed right now
    return bool(links) and max(links) == 1


def remove_others(files: MachineDir, chain: Chain) -> None:
    """Remove the files of disks that are not of this chain. Raises BackendUnavailable."""
    used = {layer.file for layer in chain.layers}
    try:
        for path in files.path.glob(_DISK_FILES):
            if path.name not in used:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise BackendUnavailable("The host could not remove a file of the machine's former disk.") from error


def _used_chain(target: Any, known: Chain) -> Chain:
    """Return the chain that the machine's process uses. Raises BackendError."""
    with domain.translate_errors("describe"):
        found = dict(identity_values(target.XMLDesc(0)))
    if "data" not in found:
        return known  # the mock hypervisor's
    return replace(known, layers=_decode_layers(found["data"], found["chain"]))


def _decode_layers(top: str, chain: str) -> tuple[Layer, ...]:
    top_format, *lower = json.loads(chain)
    below = [Layer(Path(path).name, kind) for kind, path in zip(lower[::2], lower[1::2], strict=True)]
    return (*reversed(below), Layer(Path(top).name, top_format))
