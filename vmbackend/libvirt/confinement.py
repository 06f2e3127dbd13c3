"""The confinement of a machine's process on its host: its user, its files, its definition.

Its directory belongs to root and is searched by the machine's group alone, so no other process reaches
a file in it by path, whatever the file's mode, and the process cannot add, replace or remove names:

    <machines_dir>/<id>/   root:uid 0710
        data.raw           uid:uid  0600   the file of the disk that is written; layers below it root:root 0444
        config             root:uid 0640   read by the process when it starts
        events.out ...     root:uid 0660   the named pipes
        everything else    root:root 0600

libvirt opens saved memory and sockets itself and hands them over as descriptors.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.domainxml import add_label
from vmbackend.libvirt.identity import has_values, rename_values
from vmbackend.libvirt.reach import ReachablePaths, unmount_all
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

KVM_DEVICE = Path("/dev/kvm")
_PROC = Path("/proc")
_DIRECTORY, _PRIVATE, _PIPE, _DISK, _LAYER, _CONFIG = 0o710, 0o700, 0o660, 0o600, 0o444, 0o640


class Confinement:
    """The confinement of one instance's machines. `disabled`: libvirt's mock hypervisor has no processes."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._machines_dir = settings.machines_dir
        self._instance = settings.instance
        self._uids = settings.uids
        self._disabled = settings.is_test
        directories = {"machines": settings.machines_dir, "kit": settings.kit_dir}
        if settings.images_dir is not None:
            directories["images"] = settings.images_dir
        self._paths = ReachablePaths(settings.instance, directories, read_only=frozenset({"kit", "images"}))

    def open(self, *, kvm: bool) -> None:
        """Make the instance's directories reachable for machines. Raise BackendUnavailable, OSError."""
        if self._disabled:
            return
        self._paths.open()
        if kvm:
            _admit_to_kvm()

    def uninstall(self) -> None:
        unmount_all(self._instance)

    def label(self, ip: str) -> str | None:
        """Return the machine's DAC label; None without processes."""
        uid = self._uids.machine(ip)
        return None if self._disabled else f"+{uid}:+{uid}"

    def path_for(self, path: Path) -> Path:
        """Return the path of one of the machine's own files for its process."""
        return self._paths.path_for(path)

    def readable_file(self, path: Path) -> Path:
        """Return the path of a file that all machines share, for their processes. They may read it only."""
        return path if self._disabled else self._paths.readable_file(path)

    def give_files(self, files: MachineDir, ip: str) -> None:
        """Let the machine's user, and no other, use its files. Before each start; idempotent.

        Files of an earlier version, or of another address, belong to another user until then. Raises
        BackendUnavailable.
        """
        if self._disabled:
            return
        uid = self._uids.machine(ip)
        try:
            files.create()
            if files.path.stat().st_gid != uid:
                self._take_uid(files, uid)
            for path in files.pipes:
                _set_access(path, 0, uid, _PIPE)
            _set_access(files.config, 0, uid, _CONFIG)
            self._give_layers(files, uid)
            _set_access(files.path, 0, uid, _DIRECTORY)
        except OSError as error:
            log.exception("machine %s: its files cannot be given to user %d", files.id, uid)
            raise BackendUnavailable("The host could not prepare the machine's files.") from error

    def close_folder(self, files: MachineDir) -> None:
        """Let no machine's user reach the files until the next start: their uid may be another machine's by now.

        Raises OSError.
        """
        if not self._disabled:
            _set_access(files.path, 0, 0, _PRIVATE)

    def give_disk(self, path: Path, ip: str) -> None:
        """Let the machine's user write a new file of its disk. Raises OSError."""
        if not self._disabled:
            _set_access(path, self._uids.machine(ip), self._uids.machine(ip), _DISK)

    def confined_xml(self, xml: str, ip: str, disk: Mapping[str, str]) -> str | None:
        """Return the XML of saved memory with this machine's label, paths and disk of today; None if it has them.

        Memory that was saved by a version without confinement would otherwise continue as root. `disk`: the values of
        its chain, which a snapshot of a sleeping machine changes.
        """
        label = self.label(ip)
        if label is None:
            return None
        domain = ET.fromstring(xml)  # noqa: S314 - libvirt's own output
        changed = _confine_domain(domain, label, self._paths)
        confined = ET.tostring(domain, encoding="unicode")
        if has_values(confined, disk):
            return confined if changed else None
        return rename_values(confined, disk)

    def _give_layers(self, files: MachineDir, uid: int) -> None:
        *lower, top = files.read_chain().layers
        _set_access(files.path / top.file, uid, uid, _DISK)
        for layer in lower:
            _set_access(files.path / layer.file, 0, 0, _LAYER)

    def _take_uid(self, files: MachineDir, uid: int) -> None:
        """Take the uid before its first use for this machine: nothing of a former machine with the same address
        remains.
        """
        if processes_of(uid):
            raise BackendUnavailable("A process of a former machine with this address has not ended yet.")
        for entry in os.scandir(self._machines_dir):
            if entry.name != files.id and entry.stat(follow_symlinks=False).st_gid == uid:
                log.warning("machine %s: the directory %s of an orphan is closed", files.id, entry.name)
                _set_access(Path(entry.path), 0, 0, _PRIVATE)


def _confine_domain(domain: ET.Element, label: str, paths: ReachablePaths) -> bool:
    """Give a domain this label and paths that its process reaches; return whether anything changed."""
    before = ET.tostring(domain)
    for element in domain.findall("seclabel[@model='dac']"):
        domain.remove(element)
    add_label(domain, label)
    for element in domain.iter():
        for attribute in ("file", "path"):
            path = element.get(attribute, "")
            if path.startswith("/"):
                element.set(attribute, str(paths.path_for(Path(path))))
    for element in (*domain.findall("os/kernel"), *domain.findall("os/initrd")):
        element.text = str(paths.readable_file(Path(element.text or "")))
    for disk in domain.findall("devices/disk[readonly]/source[@file]"):
        disk.set("file", str(paths.readable_file(Path(disk.get("file", "")))))
    return ET.tostring(domain) != before


def processes_of(uid: int) -> list[int]:
    """Return the process ids of a user."""
    found = []
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid:
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended
    return found


def _set_access(path: Path, uid: int, gid: int, mode: int) -> None:
    """Set owner and mode, the owner first: a changed owner clears bits of the mode. A missing file needs no access."""
    try:
        present = path.lstat()
    except FileNotFoundError:
        return
    if (present.st_uid, present.st_gid) != (uid, gid):
        os.chown(path, uid, gid, follow_symlinks=False)
    if stat.S_IMODE(present.st_mode) != mode or (present.st_uid, present.st_gid) != (uid, gid):
        path.chmod(mode)


def _admit_to_kvm() -> None:
    """Let every user open /dev/kvm, which the kernel's interface is made for and udev's own default is.

    libvirt copies the device's mode into the machine's private /dev, and the machine's user is in no group.
    """
    mode = stat.S_IMODE(KVM_DEVICE.stat().st_mode)
    if mode & 0o006 != 0o006:
        log.warning("%s is opened to all users, because machines have users of their own", KVM_DEVICE)
        KVM_DEVICE.chmod(mode | 0o006)
