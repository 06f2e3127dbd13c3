"""One job of libvirt that writes a machine's memory and moves its disk to a new file, with a watch over it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from vmbackend.errors import BackendError
from vmbackend.libvirt import domain
from vmbackend.libvirt.convergence import Convergence
from vmbackend.libvirt.layers import DATA_DISK

log = logging.getLogger(__name__)

_FLAGS = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REUSE_EXT | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
_JOB_SECONDS, _JOB_SECONDS_PER_MB = 120.0, 0.1
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """The files of a job: memory as libvirt sees it, or None; the disk's new file as the machine's process sees it.

    `convergence`: of a running machine that runs meanwhile, and afterwards.
    """

    memory: Path | None
    overlay: Path
    memory_mb: int
    convergence: Convergence | None = None

    def run(self, target: Any) -> None:
        """Write the memory and go on in the new file.

        Raise BackendUnavailable, MachineNotFound, InvalidMachineState, and GuestUnreachable of the convergence.
        """
        if self.memory is None:
            flags = _FLAGS | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        else:
            flags = _FLAGS | (libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_LIVE if self.convergence else 0)
        deadline = time.monotonic() + _JOB_SECONDS + _JOB_SECONDS_PER_MB * self.memory_mb
        with self._watched(target, deadline), domain.translate_errors_of(target, "make a snapshot of"):
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
    def _watched(self, target: Any, deadline: float) -> Iterator[None]:
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(target, ended, deadline), name="snapshot-watch")
        with domain.translate_errors("prepare a snapshot of"):
            if self.convergence:
                self.convergence.begin()
        watch.start()
        try:
            yield
        except BackendError as error:
            if self.convergence and self.convergence.failure:
                raise self.convergence.failure from error
            raise
        finally:
            ended.set()
            watch.join()
            with suppress(libvirt.libvirtError):
                if self.convergence:
                    self.convergence.end()

    def _watch(self, target: Any, ended: threading.Event, deadline: float) -> None:
        while not ended.wait(_POLL_SECONDS):
            with suppress(libvirt.libvirtError):
                if time.monotonic() >= deadline:
                    log.error("a snapshot of %s is given up: it takes too long", target.name())
                    target.abortJob()
                elif self.convergence:
                    self.convergence.look()
