"""Starting and stopping a machine's process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import libvirt

from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, SavedMemoryUnusable, TemplateUnusable
from vmbackend.libvirt import domain
from vmbackend.libvirt.assigning import assign_guest
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.copy_loading import load_copy
from vmbackend.libvirt.events import Events
from vmbackend.libvirt.record import MachineDir, Record
from vmbackend.libvirt.saved_memory import SavedMemory
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.starting import StartHooks
from vmbackend.libvirt.store import StoredMemory
from vmbackend.libvirt.template_loading import load_template
from vmbackend.libvirt.templates import Templates
from vmbackend.power import StartedFrom

log = logging.getLogger(__name__)

_STOP_EVENT_SECONDS = 1.0

UP = (MachineState.RUNNING, MachineState.PAUSED)


class _EndedAtOnce(Exception):
    """A process has ended before its CPUs ran."""


class Power:
    """The power operations of one instance's machines. The driver checks states before."""

    def __init__(
        self,
        settings: LibvirtSettings,
        connection: LibvirtConnection,
        events: Events,
        saved_state: SavedStateManager,
        templates: Templates,
    ) -> None:
        self._settings = settings
        self._libvirt = connection
        self._events = events
        self._saved_state = saved_state
        self._templates = templates
        self._quota_works = True

    def start(self, target: Any, files: MachineDir, hooks: StartHooks, *, asleep: bool) -> StartedFrom:
        """Start from saved memory, from a template or cold; return which of them.

        The machine is attached to its network, connected and limited before its CPUs run. Raise SavedMemoryUnusable,
        BackendUnavailable and the errors of `hooks.port`.
        """
        if not asleep:
            SavedMemory(files).drop()  # partial, of a save during which the process died
            template = self._templates.find_for(target)
            if template is not None:
                if self._start_from(template, target, files, hooks):
                    return StartedFrom.TEMPLATE
                self._start_after_failure(target, files, hooks)
                return StartedFrom.BOOT
        with self._starting(target, files, asleep=asleep):
            if asleep:
                self._saved_state.restore_memory(self._libvirt.connection, target, files, hooks)
            else:
                self._start(target, hooks)
        return StartedFrom.MEMORY if asleep else StartedFrom.BOOT

    @contextmanager
    def _starting(self, target: Any, files: MachineDir, *, asleep: bool) -> Iterator[None]:
        self._events.begin_start(files, wake=asleep)
        try:
            yield
        except BaseException as error:
            self._roll_back_start(target, files, asleep=asleep and not isinstance(error, SavedMemoryUnusable))
            raise

    @contextmanager
    def assigning(self, target: Any, files: MachineDir) -> Iterator[Callable[[], None]]:
        """Begin another start of a process that is paused and nobody's; yield what assigns its guest, whose CPUs run
        then. After an error in the block the process has ended.
        """
        with self._starting(target, files, asleep=False):
            self._events.report_started(files.id)  # libvirt will not
            yield partial(assign_guest, target, files)

    def _start_from(self, template: StoredMemory, target: Any, files: MachineDir, hooks: StartHooks) -> bool:
        """Start from a template. False if it cannot be loaded: the machine is off, and its process has ended."""
        try:
            with self._starting(target, files, asleep=False):
                load_template(self._libvirt.connection, template, target, files, hooks)
        except TemplateUnusable as error:
            log.warning("machine %s starts cold: template %s: %s", files.id, template.name, error)
            self._templates.record_load(template, files.id, failed=True)
            return False
        self._templates.record_load(template, files.id, failed=False)
        return True

    def _start_after_failure(self, target: Any, files: MachineDir, hooks: StartHooks) -> None:
        """Start cold. On a busy host libvirt takes the late news of the former process's end for this one's, and ends
        it, too: so there is a second attempt.
        """
        with suppress(_EndedAtOnce):
            with self._starting(target, files, asleep=False):
                self._start(target, hooks)
                if domain.state_of(target) not in UP:
                    raise _EndedAtOnce
            return
        log.warning("machine %s: its process has ended at once and is started again", files.id)
        with self._starting(target, files, asleep=False):
            self._start(target, hooks)

    def load(
        self,
        entry: StoredMemory,
        target: Any,
        files: MachineDir,
        hooks: StartHooks,
        *,
        proven: Callable[[], None] = lambda: None,
    ) -> None:
        """Start a machine without a process from a snapshot's memory. Raise the errors of `load_copy`: it has none."""
        with self._starting(target, files, asleep=False):
            load_copy(self._libvirt.connection, entry, target, files, hooks, proven=proven)

    def _start(self, target: Any, hooks: StartHooks) -> None:
        """Start process and network concurrently. A death in between leaves a paused machine that never ran."""
        flags = 0 if self._settings.is_test else libvirt.VIR_DOMAIN_START_PAUSED  # not supported by the mock
        with ThreadPoolExecutor(1) as executor:
            attaching = executor.submit(hooks.port.attach)
            domain.start_domain(target, flags)
        attaching.result()
        hooks.port.connect()
        hooks.limit(target)
        domain.resume_domain(target)

    def press_power_button(self, target: Any, machine_id: str, grace: float) -> bool:
        """Press the power button of a running machine; return whether it powered off within `grace` seconds.

        Raise BackendUnavailable.
        """
        deadline = time.monotonic() + grace
        domain.press_power_button(target)
        while domain.state_of(target) in UP:
            if time.monotonic() >= deadline:
                return False
            # Woken by the event; the timeout is for an event that was lost with a connection.
            self._events.wait_stopped(machine_id, min(1.0, max(0.01, deadline - time.monotonic())))
        return True

    def destroy(self, target: Any, files: MachineDir) -> None:
        """End the process and drop saved memory. `target` None: libvirt does not know the machine."""
        # First, so that a concurrent wake has nothing to retry with; again below, for a concurrent sleep.
        SavedMemory(files).drop()
        if target is not None:
            domain.destroy_domain(target)
            SavedMemory(files).drop()
            self.wait_until_stopped(files.id)

    def wait_until_stopped(self, machine_id: str) -> None:
        """Wait until the stop was reported: a start that follows must not take it for its own.

        Limited in time, as the event may be lost with a connection.
        """
        self._events.wait_stopped(machine_id, _STOP_EVENT_SECONDS)

    def _roll_back_start(self, target: Any, files: MachineDir, *, asleep: bool) -> None:
        """Clean up after a failed start. `asleep`: it was asleep, and its saved memory is usable."""
        state = None
        with suppress(BackendError):
            state = self._saved_state.state(target, files)
        if asleep and state in UP:
            return  # restored, but its CPUs did not start: a paused machine
        self._events.cancel_start(files.id, asleep=asleep and state is not MachineState.OFF)
        if not asleep:
            domain.destroy_domain(target)
            files.loading.unlink(missing_ok=True)

    def apply_cpu_quota(self, target: Any, record: Record) -> None:
        """Apply the CPU quota. Called once it is ready, as the emulator's own threads count, too."""
        if self._settings.is_test or not self._quota_works:
            return
        self._quota_works = domain.set_cpu_quota(target, record.cpus)
        if not self._quota_works:
            log.warning("This host's cgroups do not support CPU quotas: fractions of a CPU are not enforced.")
