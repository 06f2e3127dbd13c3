"""Boot templates: guests saved after their kernel has started, from which machines of the same shape start.

Nothing of an image, an account or a network is in them. They are made in the background for shapes that machines were
started with, when the host is not busy, and the least used ones go when there are too many.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from typing import Any

import libvirt

from vmbackend.driver import BootTemplate
from vmbackend.errors import BackendError
from vmbackend.host_load import cpu_ticks, was_quiet
from vmbackend.libvirt import disks
from vmbackend.libvirt.capacity import require_memory
from vmbackend.libvirt.confinement import Confinement
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.identity import size_of
from vmbackend.libvirt.needs import memory_needs
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.store import Store, StoredMemory
from vmbackend.libvirt.template_making import TemplateMaker

log = logging.getLogger(__name__)

_PREFIX = "boot_"
# A template whose loads failed for so many machines in a row is not used any more; another one is made after a while.
_MACHINES_MAX = 3
_AGAIN_SECONDS = 3600.0
# How often the host's load is looked at. After the longest wait a template is made all the same.
_LOOK_SECONDS = 3.0
_WAIT_SECONDS = 60.0
# A template's file has less; QEMU needs the guest's memory while it is made.
_TEMPLATE_MB = 256


class Templates:
    """The templates of one instance. Thread-safe."""

    def __init__(self, settings: LibvirtSettings, connection: LibvirtConnection, access: Confinement) -> None:
        self._settings = settings
        self._libvirt = connection
        self._store = Store(settings.machines_dir)
        self._maker = TemplateMaker(settings, access)
        self._wanted: dict[str, str] = {}  # name -> the definition of a machine of this shape
        self._failed: dict[str, set[str]] = {}  # name -> the machines whose loads failed since one went well
        self._counts: dict[str, tuple[int, int]] = {}  # name -> loads, failures
        self._not_before: dict[str, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._limit = 0 if settings.is_test else settings.boot_templates

    def open(self) -> None:
        """Remove what a former process left, and start to make what is wanted. libvirt is open. Raise OSError."""
        if not self._limit:
            return
        self._maker.stopping.clear()
        self._store.open()
        self._maker.clean_up(self._libvirt.connection)
        self._thread = threading.Thread(target=self._run, name="boot-templates", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop making: a guest that is being started for a template is ended, a save is waited for. Idempotent."""
        self._maker.stopping.set()
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def find_for(self, target: Any) -> StoredMemory | None:
        """Return the template for a start of this machine; None if there is none yet, which is noted."""
        if not self._limit:
            return None
        try:
            definition = target.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
            name = _name_of(memory_needs(self._libvirt.connection, definition))
        except (BackendError, libvirt.libvirtError, OSError) as error:
            log.warning("a machine boots, as its definition could not be read: %s", error)
            return None
        entry = self._store.find(name)
        if entry is None:
            with self._changed:
                self._wanted[name] = definition
                self._changed.notify_all()
        return entry

    def record_load(self, entry: StoredMemory, machine_id: str, *, failed: bool) -> None:
        """Count a load; a template that fails for one machine after another is removed."""
        with self._changed:
            loads, failures = self._counts.get(entry.name, (0, 0))
            self._counts[entry.name] = (loads + 1, failures + failed)
            retired = self._note_result(entry.name, machine_id, failed=failed)
            if retired:
                self._not_before[entry.name] = time.monotonic() + _AGAIN_SECONDS
        if retired:
            log.error("template %s is retired: it could not be loaded for %d machines", entry.name, _MACHINES_MAX)
            self._store.remove(entry.name)
        self._store.note_use(entry.name)

    def _note_result(self, name: str, machine_id: str, *, failed: bool) -> bool:
        """Note a load; return whether the last ones failed for too many machines. One broken machine counts once,
        however often it is started: the template serves the others.
        """
        if not failed:
            self._failed.pop(name, None)
            return False
        machines = self._failed.setdefault(name, set())
        machines.add(machine_id)
        if len(machines) < _MACHINES_MAX:
            return False
        del self._failed[name]
        return True

    def describe(self) -> tuple[BootTemplate, ...]:
        """Return the templates that there are, the one that was used last first."""
        found = [self._store.find(name) for name in self._store.names_by_use(_PREFIX)] if self._limit else []
        return tuple(self._describe(entry) for entry in found if entry is not None)

    def _describe(self, entry: StoredMemory) -> BootTemplate:
        loads, failures = self._counts.get(entry.name, (0, 0))
        return BootTemplate(
            cpus=entry.needs["cpus"],
            memory_mb=entry.needs["memory_mb"],
            size_bytes=entry.memory_bytes,
            made_at=entry.made_at,
            loads=loads,
            failures=failures,
        )

    def _run(self) -> None:
        while (next_one := self._await_wanted()) is not None:
            try:
                self._make(*next_one)
            except (BackendError, OSError, libvirt.libvirtError) as error:
                log.warning("a template could not be made: %s", error)
                self._not_before[next_one[0]] = time.monotonic() + _AGAIN_SECONDS
            except Exception:
                log.exception("boot templates")
                self._not_before[next_one[0]] = time.monotonic() + _AGAIN_SECONDS

    def _await_wanted(self) -> tuple[str, str] | None:
        """Wait for a shape without a template, then for a quiet host. None at `close`."""
        with self._changed:
            while self._thread is threading.current_thread():
                while self._wanted:
                    name, definition = self._wanted.popitem()
                    due = self._not_before.get(name, 0.0) <= time.monotonic()
                    if due and self._store.find(name) is None and self._await_quiet():
                        return name, definition
                self._changed.wait()
        return None

    def _await_quiet(self) -> bool:
        """Wait until the host is not busy, with the lock, which is released meanwhile. Return False at `close`."""
        latest = time.monotonic() + _WAIT_SECONDS
        is_quiet = False
        while not is_quiet and time.monotonic() < latest and self._thread is threading.current_thread():
            before = cpu_ticks()
            self._changed.wait_for(lambda: self._thread is not threading.current_thread(), _LOOK_SECONDS)
            is_quiet = was_quiet(before, cpu_ticks())
        return self._thread is threading.current_thread()

    def _make(self, name: str, definition: str) -> None:
        _, memory_mb = size_of(definition)
        require_memory(self._settings, memory_mb)
        disks.require_free_space(self._settings.machines_dir, _TEMPLATE_MB, self._settings.disk_reserve_mb)
        began = time.monotonic()
        connection = self._libvirt.connection
        entry = self._store.add(
            name,
            memory_needs(self._libvirt.connection, definition),
            lambda path: self._maker.save_waiting_guest(connection, definition, path),
        )
        took, size = time.monotonic() - began, entry.memory_bytes >> 20
        log.info("template %s for machines of %d MiB: %d MiB in %.1f s", name, memory_mb, size, took)
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Keep as many as the settings allow: those that were used last."""
        for name in self._store.names_by_use(_PREFIX)[self._limit :]:
            self._store.remove(name)


def _name_of(needs: dict[str, Any]) -> str:
    return _PREFIX + hashlib.sha256(json.dumps(needs, sort_keys=True).encode()).hexdigest()[:32]
