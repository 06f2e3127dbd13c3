"""Saving a machine's memory to its directory and restoring it.

Memory must never be restored twice: the disk has changed since. So a machine is restored with its CPUs stopped, its
saved memory is removed, and only then its CPUs continue. A death in between leaves a paused machine.

Besides this file there may be a *managed* image of libvirt, saved by another program, such as a host that saves all
machines when it shuts down. It is restored in the same way.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import libvirt

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, BackendUnavailable, CapacityExceeded, GuestUnreachable, SavedMemoryUnusable
from vmbackend.libvirt import disks, domain
from vmbackend.libvirt.held_programs import forget_held, freeze_programs, thaw_abandoned, thaw_programs
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_memory import SavedMemory, managed_image
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.starting import StartHooks

log = logging.getLogger(__name__)

# A save file contains devices and page headers besides the guest's memory.
OVERHEAD_MB = 64
_ABORT_SECONDS = 30.0
_PAUSES = (0.1, 1.0)  # seconds before a retry
_UNUSABLE = "The machine's saved memory could not be loaded and was dropped: its next start is a cold one."


class SavedStateManager:
    """The saved memory of one instance's machines."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._settings = settings

    def state(self, target: Any, files: MachineDir) -> MachineState:
        """Return the machine's state, saved memory included."""
        state = domain.state_of(target)
        if state is MachineState.OFF and SavedMemory(files).is_complete:
            return MachineState.ASLEEP
        return state

    def save_memory(self, target: Any, files: MachineDir, memory_mb: int) -> None:
        """Do what `Driver.sleep` does, for a running or paused machine."""
        self._require_free_space(memory_mb)
        memory = SavedMemory(files)
        memory.drop()
        # A copy that is made of this memory runs no program before its renewal. A guest that does not answer here does
        # not answer there either.
        with suppress(GuestUnreachable):
            freeze_programs(files)
        try:
            with domain.translate_errors_of(target, "put to sleep"):
                target.saveFlags(str(memory.path), None, 0)
        except BackendError:
            self._clean_up_failed_save(target, memory)
            with suppress(GuestUnreachable):
                thaw_programs(files)
            raise
        forget_held(files)
        memory.write_checksum()

    def restore_memory(self, connection: Any, target: Any, files: MachineDir, hooks: StartHooks) -> None:
        """Restore the memory and let the CPUs continue. As `Driver.start` of a sleeping machine.

        The machine is attached to its network concurrently with the restore, and connected and limited before the CPUs
        continue; if that raises, the machine sleeps as before.
        """
        memory = SavedMemory(files)
        if not memory.is_complete:
            hooks.port.attach()
            _restore_managed(target, hooks, 0 if self._settings.is_test else libvirt.VIR_DOMAIN_START_PAUSED)
            hooks.port.connect()
            domain.resume_domain(target)
            return
        with ThreadPoolExecutor(1) as executor:
            attaching = executor.submit(hooks.port.attach)
            loaded = self._load(connection, memory, hooks)
        if not loaded:
            domain.destroy_domain(target)
            memory.drop()
            raise SavedMemoryUnusable(_UNUSABLE)
        try:
            attaching.result()
            hooks.port.connect()
            hooks.limit(target)
        except BaseException:
            domain.destroy_domain(target)
            raise
        memory.drop()
        domain.resume_domain(target)

    def drop_loaded_memory(self, files: MachineDir) -> None:
        """Drop memory that was restored, before the CPUs continue: it must not be restored again.

        Partial memory stays: a concurrent sleep is writing it.
        """
        memory = SavedMemory(files)
        if memory.is_complete:
            memory.drop()

    def drop_all(self, files: MachineDir) -> None:
        """Remove all saved memory, also of a machine unknown to libvirt. The machine must not have a process."""
        SavedMemory(files).drop()
        image = self._managed_image(files.id)
        try:
            files.managed_memory.unlink(missing_ok=True)
            if image is not None:
                image.unlink(missing_ok=True)
        except OSError as error:
            raise BackendUnavailable("The machine's saved memory could not be removed.") from error

    def reconcile(self, target: Any, files: MachineDir) -> None:
        """Clean up after a death during a sleep, a wake or a snapshot, once libvirt was opened."""
        memory = SavedMemory(files)
        if files.woken.exists():
            memory.drop()
        # Programs that are let go on while libvirt still saves them would run in copies before these are renewed.
        if memory.exists and not _abort_save(target):
            return
        state = domain.state_of(target)
        if memory.exists and (state in (MachineState.RUNNING, MachineState.PAUSED) or not memory.is_complete):
            log.warning("machine %s: partial or outdated saved memory is removed", files.id)
            memory.drop()
        thaw_abandoned(files, runs=state is MachineState.RUNNING)

    def exists(self, files: MachineDir, target: Any) -> bool:
        """Return whether any saved memory of the machine exists, complete or partial."""
        image = self._managed_image(files.id)
        return SavedMemory(files).exists or (image is not None and image.exists()) or domain.has_saved_memory(target)

    def memory_file(self, files: MachineDir) -> Path:
        """Return the file that a sleeping machine wakes from. Raise BackendUnavailable."""
        if SavedMemory(files).is_complete:
            return files.memory
        image = self._managed_image(files.id)
        if image is None or not image.exists():
            raise BackendUnavailable("The host cannot read the machine's saved memory: wake it first.")
        return image

    def managed_image_ids(self) -> frozenset[str]:
        """Return machine ids with a managed image in an embedded libvirt, whether it knows the machine or not."""
        root = self._settings.embed_root
        if root is None:
            return frozenset()
        prefix = domain.name_for(self._settings.instance, "")
        found = managed_image(root, prefix + "*")
        return frozenset(path.name[len(prefix) : -len(".save")] for path in found.parent.glob(found.name))

    def _managed_image(self, machine_id: str) -> Path | None:
        root = self._settings.embed_root
        return None if root is None else managed_image(root, domain.name_for(self._settings.instance, machine_id))

    def _require_free_space(self, memory_mb: int) -> None:
        free = disks.free_mb(self._settings.machines_dir) - self._settings.disk_reserve_mb
        if memory_mb + OVERHEAD_MB > free:
            raise CapacityExceeded(f"The host lacks space for {memory_mb} MiB of memory ({max(0, free)} MiB are free).")

    def _clean_up_failed_save(self, target: Any, memory: SavedMemory) -> None:
        """Clean up after a failed save.

        While libvirt is unreachable it may still be writing: then `reconcile` does it.
        """
        try:
            state = domain.state_of(target)
        except BackendError:
            return
        if state in (MachineState.RUNNING, MachineState.PAUSED) or not memory.is_complete:
            memory.drop()

    def _load(self, connection: Any, memory: SavedMemory, hooks: StartHooks) -> bool:
        """Restore and verify the memory concurrently; return whether both succeeded.

        Valid memory that did not load is retried: the process may have been killed in between, and the late event of
        that death was observed to end the next process, too.
        """
        with ThreadPoolExecutor(1) as checking:
            valid = checking.submit(memory.matches_checksum)
            flags = 0 if self._settings.is_test else libvirt.VIR_DOMAIN_SAVE_PAUSED
            try:
                xml = _confined_xml(connection, memory, hooks)
                loaded = _restore(connection, memory, xml, flags)
            except SavedMemoryUnusable:
                return False
            except BackendUnavailable:
                # libvirt reports some effects of a corrupt file as a system error.
                if valid.result():
                    raise
                return False
            for pause in _PAUSES:
                if loaded or not valid.result():
                    break
                time.sleep(pause)
                loaded = _restore(connection, memory, xml, flags)
            return loaded and valid.result()


def _confined_xml(connection: Any, memory: SavedMemory, hooks: StartHooks) -> str | None:
    """See `Confinement.confined_xml`. Memory that is not described is not restored: its XML may name another user.

    Raise SavedMemoryUnusable if libvirt cannot read a file that has no checksum, otherwise BackendUnavailable.
    """
    try:
        xml = connection.saveImageGetXMLDesc(str(memory.path), libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE)
    except (libvirt.libvirtError, SystemError) as error:
        log.error("libvirt could not describe saved memory: %s", error)
        lost = isinstance(error, libvirt.libvirtError) and domain.is_connection_error(error)
        if not memory.has_checksum and not lost:
            raise SavedMemoryUnusable(_UNUSABLE) from error
        raise BackendUnavailable("The hypervisor could not read the machine's saved memory.") from error
    return hooks.confined_xml(xml)


def _restore(connection: Any, memory: SavedMemory, xml: str | None, flags: int) -> bool:
    """Return False if the hypervisor failed to load it.

    Raise BackendUnavailable if the hypervisor was not reached, or if the host is short of something: that says nothing
    of the memory, which the next attempt loads.
    """
    try:
        connection.restoreFlags(str(memory.path), xml, flags)
    except libvirt.libvirtError as error:
        if domain.is_connection_error(error) or domain.is_shortage(error):
            with domain.translate_errors("wake"):
                raise
        log.error("libvirt: wake: %s", error)
        return False
    except SystemError:
        # The binding raises this for a message that contains bytes of the file which are not UTF-8.
        log.exception("libvirt: wake")
        return False
    return True


def _restore_managed(target: Any, hooks: StartHooks, flags: int) -> None:
    """Restore a managed image, with its CPUs stopped if `flags` say so; libvirt removes the image then.

    libvirt silently starts cold if its header is unreadable, so that is checked first. A process that is not confined
    is ended.
    """
    try:
        xml = hooks.confined_xml(target.managedSaveGetXMLDesc(libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE))
        if xml is not None:
            target.managedSaveDefineXML(xml)
        target.createWithFlags(flags)
    except libvirt.libvirtError as error:
        if domain.is_connection_error(error):
            with domain.translate_errors("wake"):
                raise
        log.error("libvirt: wake: %s", error)
        domain.drop_saved_memory(target)
        raise SavedMemoryUnusable(_UNUSABLE) from error
    try:
        hooks.limit(target)
    except BaseException:
        domain.destroy_domain(target)
        raise


def _abort_save(target: Any) -> bool:
    """Abort a save that libvirt still performs for a caller that is gone. The machine continues.

    False if it does not end: the file must not be removed then, as it may become the only copy.
    """
    deadline = time.monotonic() + _ABORT_SECONDS
    while time.monotonic() < deadline:
        try:
            if target.jobInfo()[0] == libvirt.VIR_DOMAIN_JOB_NONE:
                return True
            target.abortJob()
        except libvirt.libvirtError:
            return True  # off, or no job by now
        time.sleep(0.1)
    log.error("libvirt does not abort an abandoned save of %s", target.name())
    return False
