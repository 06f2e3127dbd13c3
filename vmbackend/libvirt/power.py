"""Starting and ending a machine's process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import libvirt

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, SavedMemoryUnusable
from vmbackend.libvirt import domain
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.events import Events
from vmbackend.libvirt.record import MachineDir, Record
from vmbackend.libvirt.saved_memory import SavedMemory
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

_STOP_EVENT_SECONDS = 1.0

UP = (MachineState.RUNNING, MachineState.PAUSED)


class Power:
    """Of one instance's machines; which of them, and whether they may, is the driver's to know."""

    def __init__(
        self, settings: LibvirtSettings, connection: LibvirtConnection, events: Events, saved_state: SavedStateManager
    ) -> None:
        self._settings = settings
        self._libvirt = connection
        self._events = events
        self._saved_state = saved_state
        self._quota_works = True

    def start(self, target: Any, files: MachineDir, attach: Callable[[], None], *, asleep: bool) -> None:
        """Cold, or from saved memory. `attach` lets the machine into its network and ends before it runs.

        Raises SavedMemoryUnusable, BackendUnavailable and what `attach` does.
        """
        self._events.begin_start(files, wake=asleep)
        try:
            if asleep:
                self._saved_state.restore_memory(self._libvirt.connection, target, files, attach)
            else:
                SavedMemory(files).drop()  # a part that a save left whose process died in it
                self._start(target, attach)
        except BaseException as error:
            self._roll_back_start(target, files, asleep=asleep and not isinstance(error, SavedMemoryUnusable))
            raise

    def _start(self, target: Any, attach: Callable[[], None]) -> None:
        """Process and network come up beside each other. A death in between leaves a paused machine that never ran."""
        flags = 0 if self._settings.is_test else libvirt.VIR_DOMAIN_START_PAUSED  # which the mock does not know
        with ThreadPoolExecutor(1) as beside:
            attaching = beside.submit(attach)
            domain.start_domain(target, flags)
        attaching.result()
        domain.resume_domain(target)

    def press_power_button(self, target: Any, machine_id: str, grace: float) -> bool:
        """Press the power button of a machine that runs; whether it went by itself within `grace` seconds.

        Raises BackendUnavailable.
        """
        deadline = time.monotonic() + grace
        domain.press_power_button(target)
        while domain.state_of(target) in UP:
            if time.monotonic() >= deadline:
                return False
            # The event wakes this; the second is for one that was lost with a connection.
            self._events.wait_stopped(machine_id, min(1.0, max(0.01, deadline - time.monotonic())))
        return True

    def destroy(self, target: Any, files: MachineDir) -> None:
        """End the process, drop saved memory. `target` None: libvirt does not know the machine."""
        # First, so that a wake of another thread finds nothing to try again with; last, for a sleep of another thread.
        SavedMemory(files).drop()
        if target is not None:
            domain.destroy_domain(target)
            SavedMemory(files).drop()
            self.wait_until_stopped(files.id)

    def wait_until_stopped(self, machine_id: str) -> None:
        """Until the stop that was just made was told: a start that follows must not take it for its own.

        At most a moment, for the word of it may be lost with a connection.
        """
        self._events.wait_stopped(machine_id, _STOP_EVENT_SECONDS)

    def _roll_back_start(self, target: Any, files: MachineDir, *, asleep: bool) -> None:
        """The start failed. `asleep`: it was, and its memory was not found wanting."""
        state = None
        with suppress(BackendError):
            state = self._saved_state.state(target, files)
        if asleep and state in UP:
            return  # loaded, and stopped just before it went on: it is a paused machine now
        self._events.cancel_start(files.id, asleep=asleep and state is not MachineState.OFF)
        if not asleep:
            domain.destroy_domain(target)

    def apply_cpu_quota(self, target: Any, record: Record) -> None:
        """Hold the machine to its share of CPUs, from when it is ready: the emulator's own threads count in it too."""
        if self._settings.is_test or not self._quota_works:
            return
        self._quota_works = domain.set_cpu_quota(target, record.cpus)
        if not self._quota_works:
            log.warning("This host's cgroups take no CPU quota: fractions of a CPU are not held.")
