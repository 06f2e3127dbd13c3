"""Steps around the start of a machine's process, whether it is cold or restores saved memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt import domain
from vmbackend.libvirt.confinement import Confinement, processes_of
from vmbackend.libvirt.domain_folders import close_folders, folders_of
from vmbackend.libvirt.layers import Layers
from vmbackend.libvirt.limits import Limits
from vmbackend.libvirt.machine_port import MachinePort
from vmbackend.libvirt.record import MachineDir, Record
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartHooks:
    """`port` is the machine's network. `limit` is `Confiner.limit`, called before its CPUs run.

    `confined_xml`: the XML of saved memory as it must be restored; None: as it was saved.
    """

    port: MachinePort
    limit: Callable[[Any], None]
    confined_xml: Callable[[str], str | None]


class Confiner:
    """The confinement of the processes of one instance's machines: their users, files and limits."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self.access = Confinement(settings)
        self.layers = Layers(self.access.path_for)
        self._limits = Limits(settings)
        self._settings = settings
        self._emulated = False
        self._limited: set[str] = set()  # machines whose present process was limited by this object

    def open(self, domain_type: str) -> None:
        """Prepare for starts, before libvirt is opened. Raise BackendUnavailable."""
        self._emulated = domain_type == "qemu"
        try:
            self.access.open(kvm=domain_type == "kvm")
        except OSError as error:
            log.exception("confinement")
            raise BackendUnavailable("The host's folders cannot be prepared for machines (is this root?).") from error
        self._limits.remove_groups()

    def hooks(self, files: MachineDir, record: Record, port: MachinePort) -> StartHooks:
        """Give the machine its files, for a start that follows. Raise BackendUnavailable."""
        self._limited.discard(record.id)
        self.access.give_files(files, record.ip)
        return StartHooks(
            port=port,
            limit=partial(self.limit, record),
            confined_xml=partial(self.access.confined_xml, ip=record.ip, disk=self.layers.values(files, record.chain)),
        )

    def limit(self, record: Record, target: Any) -> None:
        """Limit a process whose CPUs are stopped, and close libvirt's folders to it.

        Raise BackendUnavailable if it does not run as the machine's user, or has changed libvirt's folders: then its
        CPUs must not run.
        """
        if self._settings.is_test:
            self._limited.add(record.id)
            return
        uid = self._settings.uids.machine(record.ip)
        pids = processes_of(uid)
        if not pids:
            log.error("machine %s: no process has its user %d", record.id, uid)
            raise BackendUnavailable("The machine's process does not run as its user.")
        with domain.translate_errors("limit"):
            # Looked up again: an object from before a restore has no number.
            domain_id = target.connect().lookupByUUIDString(target.UUIDString()).ID()
        try:
            close_folders(folders_of(self._settings.embed_root, pids[0]), domain_id, uid)
        except OSError as error:
            log.exception("machine %s: libvirt's folders cannot be closed", record.id)
            raise BackendUnavailable("The host could not confine the machine's process.") from error
        self._limits.apply(target, record, emulated=self._emulated)
        self._limited.add(record.id)

    def has_limited(self, machine_id: str) -> bool:
        """Return whether this object has limited the machine's present process; False if a former driver may have."""
        return machine_id in self._limited

    def remove_groups(self, machine_id: str) -> None:
        """Remove what `limit` made, once the process has ended."""
        self._limited.discard(machine_id)
        self._limits.remove_groups(machine_id)

    def uninstall(self) -> None:
        """Remove the instance's mounts."""
        self.access.uninstall()
