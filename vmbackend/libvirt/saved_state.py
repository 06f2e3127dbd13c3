"""Writing a machine's memory to its directory and loading it again.

Memory that was loaded must never be loaded twice: the disk has gone on since. So a waking machine comes up with its
CPUs stopped, its saved memory is removed, and only then it goes on. A death in between leaves a paused machine.

Besides our own file there may be a *managed* image of libvirt: somebody else's doing, such as a host that saves all
machines when it goes down. It is honoured, and goes the same ways.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import libvirt

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, BackendUnavailable, CapacityExceeded, SavedMemoryUnusable
from vmbackend.libvirt import disks, domain
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_memory import SavedMemory, managed_image
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

# What a save file holds beside the guest's memory: devices, and the marks between pages.
_OVERHEAD_MB = 64
_ABORT_SECONDS = 30.0
_PAUSES = (0.1, 1.0)  # seconds before loading again
_UNUSABLE = "The machine's saved memory could not be loaded and was dropped: its next start is a cold one."


class SavedStateManager:
    """One instance's saved memory."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._settings = settings

    def state(self, target: Any, files: MachineDir) -> MachineState:
        """The machine's state, saved memory included."""
        state = domain.state_of(target)
        if state is MachineState.OFF and SavedMemory(files).is_complete:
            return MachineState.ASLEEP
        return state

    def save_memory(self, target: Any, files: MachineDir, memory_mb: int) -> None:
        """As `Driver.sleep`, for a machine that runs or is paused."""
        self._require_free_space(memory_mb)
        memory = SavedMemory(files)
        memory.drop()
        try:
            with domain.translate_errors("put to sleep"):
                target.saveFlags(str(memory.path), None, 0)
        except BackendError:
            self._clean_up_failed_save(target, memory)
            raise
        memory.write_checksum()

    def restore_memory(self, connection: Any, target: Any, files: MachineDir, attach: Callable[[], None]) -> None:
        """Load the memory and let the CPUs go on. As `Driver.start` of a sleeping machine.

        `attach` goes on beside the loading and has come to its end before the CPUs do; where it raises, the machine
        sleeps as before.
        """
        memory = SavedMemory(files)
        if not memory.is_complete:
            attach()
            _restore_managed(target)
            return
        with ThreadPoolExecutor(1) as beside:
            attaching = beside.submit(attach)
            loaded = self._load(connection, target, memory)
        if not loaded:
            domain.destroy_domain(target)
            memory.drop()
            raise SavedMemoryUnusable(_UNUSABLE)
        if attaching.exception():
            domain.destroy_domain(target)
        attaching.result()
        memory.drop()
        domain.resume_domain(target)

    def drop_loaded_memory(self, files: MachineDir) -> None:
        """Of a machine that is about to go on: memory that was loaded must not be loaded again.

        A part of it is another thread's, which is writing it.
        """
        memory = SavedMemory(files)
        if memory.is_complete:
            memory.drop()

    def drop_all(self, files: MachineDir) -> None:
        """Remove every file of saved memory, that of a machine unknown to libvirt too. No process may be there."""
        SavedMemory(files).drop()
        image = self._managed_image(files.id)
        try:
            if image is not None:
                image.unlink(missing_ok=True)
        except OSError as error:
            raise BackendUnavailable("The machine's saved memory could not be removed.") from error

    def reconcile(self, target: Any, files: MachineDir) -> None:
        """After libvirt was opened: what a death in the middle of a sleep or a wake left is put right."""
        memory = SavedMemory(files)
        if not memory.exists:
            return
        if not _abort_save(target):
            return
        if domain.state_of(target) in (MachineState.RUNNING, MachineState.PAUSED) or not memory.is_complete:
            log.warning("machine %s: partial or outdated saved memory is removed", files.id)
            memory.drop()

    def exists(self, files: MachineDir, target: Any) -> bool:
        """Whether any saved memory of the machine exists, whole or partial."""
        image = self._managed_image(files.id)
        return SavedMemory(files).exists or (image is not None and image.exists()) or domain.has_saved_memory(target)

    def managed_image_ids(self) -> frozenset[str]:
        """Machine ids of which an embedded libvirt keeps saved memory, whether it knows the machine or not."""
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
        if memory_mb + _OVERHEAD_MB > free:
            raise CapacityExceeded(f"The host has no room for {memory_mb} MiB of memory ({max(0, free)} MiB are free).")

    def _clean_up_failed_save(self, target: Any, memory: SavedMemory) -> None:
        """A save failed. While libvirt cannot be asked it may still be writing: then the next opening settles it."""
        try:
            state = domain.state_of(target)
        except BackendError:
            return
        if state in (MachineState.RUNNING, MachineState.PAUSED) or not memory.is_complete:
            memory.drop()

    def _load(self, connection: Any, target: Any, memory: SavedMemory) -> bool:
        """Whether the machine is there again. Loaded and checked side by side.

        What is sound but did not load is tried again: its process may have been killed meanwhile, and the late word of
        that death has been seen to end the next process too.
        """
        with ThreadPoolExecutor(1) as checking:
            sound = checking.submit(memory.matches_checksum)
            flags = 0 if self._settings.is_test else libvirt.VIR_DOMAIN_SAVE_PAUSED
            try:
                loaded = _restore(connection, memory, flags)
            except BackendUnavailable:
                # libvirt calls some of what a spoilt file does to it an error of the system.
                if sound.result():
                    raise
                return False
            for pause in _PAUSES:
                if loaded or not sound.result():
                    break
                time.sleep(pause)
                loaded = _restore(connection, memory, flags)
            return loaded and sound.result()


def _restore(connection: Any, memory: SavedMemory, flags: int) -> bool:
    """False where the hypervisor would not load it. Raises BackendUnavailable where it was not asked."""
    try:
        connection.restoreFlags(str(memory.path), None, flags)
    except libvirt.libvirtError as error:
        if domain.is_connection_error(error):
            with domain.translate_errors("wake"):
                raise
        log.error("libvirt: wake: %s", error)
        return False
    except SystemError:
        # The binding cannot make an exception of a message that quotes the file's own bytes.
        log.exception("libvirt: wake")
        return False
    return True


def _restore_managed(target: Any) -> None:
    """libvirt starts cold, without a word, where its image's beginning cannot be read: so that is looked at first."""
    try:
        target.managedSaveGetXMLDesc(0)
        target.create()
    except libvirt.libvirtError as error:
        if domain.is_connection_error(error):
            with domain.translate_errors("wake"):
                raise
        log.error("libvirt: wake: %s", error)
        domain.drop_saved_memory(target)
        raise SavedMemoryUnusable(_UNUSABLE) from error


def _abort_save(target: Any) -> bool:
    """Stop a save that libvirt still writes: nobody waits for it any more. The machine then goes on.

    False where it does not end: the file must not be touched then, it may become the only copy.
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
    log.error("libvirt does not end a save of %s that was given up", target.name())
    return False
