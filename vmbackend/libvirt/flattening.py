"""Making a machine's disk one raw file again that shares nothing."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from vmbackend.copies import AT_ONCE, CopyPace
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, DeadlineExceeded, InvalidMachineState
from vmbackend.libvirt import disks, domain
from vmbackend.libvirt.confinement import Confinement
from vmbackend.libvirt.layers import (
    DATA_DISK,
    Layers,
    abort_copy,
    allocated_bytes,
    has_process,
    keep_time,
    new_layer,
)
from vmbackend.libvirt.process import run_until_done
from vmbackend.libvirt.record import Chain, MachineDir, Record
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.tool_confinement import ToolConfinement, confined_command

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_COPY = libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB | libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT


class Flattener:
    """Flattens the disks of one instance's machines."""

    def __init__(self, settings: LibvirtSettings, access: Confinement, layers: Layers) -> None:
        self._settings = settings
        self.access = access
        self.layers = layers

    def flatten(
        self,
        connection: Any,
        target: Any,
        files: MachineDir,
        record: Record,
        timeout: float,
        *,
        pace: CopyPace = AT_ONCE,
    ) -> Record:
        """Make the disk one raw file, in any state; return the record. Saved memory still matches it.

        Raise CapacityExceeded (before anything is written), DeadlineExceeded, InvalidMachineState, BackendUnavailable;
        the disk is as it was then.
        """
        if record.chain.is_flat:
            return record
        needed = self.needed_mb(files, record)
        disks.require_free_space(self._settings.machines_dir, needed, self._settings.disk_reserve_mb)
        deadline = time.monotonic() + timeout
        layer = new_layer("raw")
        flat = replace(record, chain=replace(record.chain, layers=(layer,)))
        path = files.path / layer.file
        try:
            _create_raw(path, record.disk_mb)
            if has_process(target):
                flat = self._copy(connection, target, files, flat, deadline, pace=pace)
            else:
                convert_layers(files, record.chain, path, max(1.0, deadline - time.monotonic()), pace)
                keep_time(files.path / record.chain.top.file, path)
                flat = self.layers.change(connection, target, files, flat)
        except OSError as error:
            self.layers.settle(connection, target, files)
            raise BackendUnavailable("The host could not write the machine's disk.") from error
        except BaseException:
            self.layers.settle(connection, target, files)
            raise
        return flat

    def needed_mb(self, files: MachineDir, record: Record) -> int:
        """Return the MiB of disk that must be free to flatten the disk; 0 if it is flat."""
        return 0 if record.chain.is_flat else min(allocated_bytes(files) // disks.MIB + 1, record.disk_mb)

    def _copy(
        self, connection: Any, target: Any, files: MachineDir, flat: Record, deadline: float, *, pace: CopyPace
    ) -> Record:
        path = files.path / flat.chain.top.file
        self.access.give_disk(path, flat.ip)
        with domain.translate_errors("copy the disk of"):
            target.blockCopy(DATA_DISK, _copy_xml(self.access.path_for(path)), _copy_limits(pace), _COPY)
        _await_ready(target, deadline, pace.give_up)
        # All but a rest, for which the CPUs stand still.
        disks.sync_file(path)
        # Both show the same until the CPUs go on, so whatever dies in between, the record names a right one.
        with _stopped_cpus(target):
            with domain.translate_errors("change the disk of"):
                target.blockJobAbort(DATA_DISK, libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)
            disks.sync_file(path)
            return self.layers.change(connection, target, files, flat)


def convert_layers(files: MachineDir, chain: Chain, target: Path, timeout: float, pace: CopyPace = AT_ONCE) -> None:
    """Write what a chain shows into a raw file that reads as zeros and is as large as the disk.

    Raise BackendUnavailable; DeadlineExceeded.
    """
    places = [f"/layer-{number}" for number in range(len(chain.layers))]
    options = ",".join(
        f"{'backing.' * depth}driver={layer.format},{'backing.' * depth}file.driver=file,"
        f"{'backing.' * depth}file.filename={place}"
        for depth, (layer, place) in enumerate(zip(reversed(chain.layers), reversed(places), strict=True))
    )
    argv = ["qemu-img", "convert", "-q", "-n", "--target-is-zero", "--image-opts", "--target-image-opts"]
    argv += ["-r", str(pace.bytes_per_second)] if pace.bytes_per_second else []
    argv.append(options)
    argv.append("driver=raw,file.driver=file,file.filename=/disk")
    files_of = [files.path / layer.file for layer in chain.layers]
    # A guest wrote what this tool reads, headers included: it sees these files and no others.
    readable = tuple(zip(files_of, places, strict=True))
    confinement = ToolConfinement(readable=readable, writable=((target, "/disk"),))
    size = target.stat().st_size
    with (
        disks.readable_by_tools(files_of),
        disks.owned_by_tools(target),
        confined_command(argv, confinement, max_file_bytes=size) as (command, descriptors),
    ):
        run_until_done(command, name="qemu-img", timeout=timeout, descriptors=descriptors, give_up=pace.give_up)
    disks.sync_file(target)


def _create_raw(path: Path, megabytes: int) -> None:
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(megabytes * disks.MIB)


def _copy_xml(path: Path) -> str:
    disk = ET.Element("disk", type="file", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type="raw")
    ET.SubElement(disk, "source", file=str(path))
    return ET.tostring(disk, encoding="unicode")


def _copy_limits(pace: CopyPace) -> dict[str, int]:
    return {libvirt.VIR_DOMAIN_BLOCK_COPY_BANDWIDTH: pace.bytes_per_second} if pace.bytes_per_second else {}


def _await_ready(target: Any, deadline: float, give_up: Callable[[], bool]) -> None:
    """Wait until the copy follows each write. That it has reached its end is not enough.

    Raise DeadlineExceeded, InvalidMachineState, BackendUnavailable; the copy may go on then.
    """
    while True:
        with domain.translate_errors("copy the disk of"):
            disk = ET.fromstring(target.XMLDesc(0)).find(f"devices/disk/target[@dev='{DATA_DISK}']/..")  # noqa: S314
        if not has_process(target):
            raise InvalidMachineState("The machine has stopped while its disk was copied.")
        mirror = disk.find("mirror") if disk is not None else None
        if mirror is None:
            raise BackendUnavailable("The machine's disk could not be copied.")
        if _is_ready(mirror):
            return
        if give_up() or time.monotonic() >= deadline:
            abort_copy(target)
            raise DeadlineExceeded("The machine's disk was not copied in time.")
        time.sleep(_POLL_SECONDS)


def _is_ready(mirror: ET.Element) -> bool:
    return mirror.get("ready") == "yes"


@contextmanager
def _stopped_cpus(target: Any) -> Iterator[None]:
    """Stop the CPUs of a running machine for the block."""
    ran = domain.state_of(target) is MachineState.RUNNING
    if ran:
        with domain.translate_errors("pause"):
            target.suspend()
    try:
        yield
    finally:
        if ran:
            domain.resume_domain(target)
