"""One job of libvirt that writes a machine's memory and moves its disk to a new file, with a watch over it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from vmbackend.libvirt import domain
from vmbackend.libvirt.layers import DATA_DISK

log = logging.getLogger(__name__)

_FLAGS = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REUSE_EXT | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
# How long the machine may stand still at the end, unless it changes memory faster than that is written.
_DOWNTIME_MS = 20
# After this time a machine that changes its memory without end is stopped until all is written.
_CONVERGE_SECONDS = 30.0
_JOB_SECONDS, _JOB_SECONDS_PER_MB = 120.0, 0.1
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """The files of a job: memory as libvirt sees it, or None; the disk's new file as the machine's process sees it.

    `has_room`: whether all that is left to write fits if the machine stood still now.
    """

    memory: Path | None
    overlay: Path
    memory_mb: int
    has_room: Callable[[], bool]

    def run(self, target: Any, *, live: bool) -> None:
        """Write the memory and go on in the new file. `live`: a running machine runs meanwhile, and afterwards.

        Raise BackendUnavailable, MachineNotFound, InvalidMachineState.
        """
        if self.memory is None:
            flags = _FLAGS | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        else:
            flags = _FLAGS | (libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_LIVE if live else 0)
        deadline = time.monotonic() + _JOB_SECONDS + _JOB_SECONDS_PER_MB * self.memory_mb
        with self._watched(target, deadline, live=live), domain.translate_errors_of(target, "make a snapshot of"):
            if live and self.memory is not None:
                target.migrateSetMaxDowntime(_DOWNTIME_MS)
            target.snapshotCreateXML(self._description(), flags)

    def _description(self) -> str:
        snapshot = ET.Element("domainsnapshot")
        if self.memory is not None:
            ET.SubElement(snapshot, "memory", snapshot="external", file=str(self.memory))
        disks = ET.SubElement(snapshot, "disks")
        ET.SubElement(disks, "disk", name="vda", snapshot="no")
        disk = ET.SubElement(disks, "disk", name=DATA_DISK, snapshot="external", type="file")
        ET.SubElement(disk, "driver", type="qcow2")
        ET.SubElement(disk, "source", file=str(self.overlay))
        return ET.tostring(snapshot, encoding="unicode")

    @contextmanager
    def _watched(self, target: Any, deadline: float, *, live: bool) -> Iterator[None]:
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(target, ended, deadline, live), name="snapshot-watch")
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()

    def _watch(self, target: Any, ended: threading.Event, deadline: float, live: bool) -> None:
        """Stop the CPUs if the job would not end otherwise, and end it at its deadline."""
        runs, converge_at = live, time.monotonic() + _CONVERGE_SECONDS
        while not ended.wait(_POLL_SECONDS):
            now = time.monotonic()
            with suppress(libvirt.libvirtError):
                if runs and (now >= converge_at or not self.has_room()):
                    runs = False
                    target.suspend()
                if now >= deadline:
                    log.error("a snapshot of %s is given up: it takes too long", target.name())
                    target.abortJob()
