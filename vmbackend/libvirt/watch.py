"""Handling of libvirt's events, and of changes while there was no connection."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any

import libvirt
import libvirt_qemu

from vmbackend.driver import MachineState, StopReason
from vmbackend.errors import MachineNotFound
from vmbackend.libvirt.domain import Domains, stop_reason_of
from vmbackend.libvirt.events import Events
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_state import SavedStateManager

log = logging.getLogger(__name__)

_STOPPED_DETAILS = {
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN: StopReason.SHUTDOWN,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_DESTROYED: StopReason.DESTROYED,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SAVED: StopReason.SAVED,
}
_SETTLE_SECONDS = 10.0


class EventWatcher:
    """Registers for libvirt's events on each new connection and reports what happened while there was none."""

    def __init__(self, domains: Domains, events: Events, saved_state: SavedStateManager) -> None:
        self._domains = domains
        self._events = events
        self._saved_state = saved_state
        self._registered: list[int] = []
        self._qemu_registered: int | None = None
        self.deleting: set[str] = set()  # undefined by `delete`, not lost

    def register(self, connection: Any) -> None:
        for kind, callback in (
            (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._lifecycle),
            (libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, self._rebooted),
        ):
            self._registered.append(connection.domainEventRegisterAny(None, kind, callback, None))
        # With on_reboot "destroy", libvirt's own events do not distinguish a guest's reset from its power-off.
        with suppress(libvirt.libvirtError):
            self._qemu_registered = libvirt_qemu.qemuMonitorEventRegister(
                connection, None, "SHUTDOWN", self._qemu_shutdown, None, 0
            )

    def unregister(self, connection: Any) -> None:
        """Deregister from a connection; errors of a dead one are ignored."""
        registered, self._registered = self._registered, []
        monitor, self._qemu_registered = self._qemu_registered, None
        for callback in registered:
            with suppress(libvirt.libvirtError):
                connection.domainEventDeregisterAny(callback)
        if monitor is not None:
            with suppress(libvirt.libvirtError):
                libvirt_qemu.qemuMonitorEventDeregister(connection, monitor)

    def reconcile_machines(self, connection: Any, directories: list[MachineDir]) -> None:
        """Report changes of machines that ran before. Blocks until libvirt's states are correct."""
        domains = self._domains.list(connection)
        for domain in domains.values():
            _wait_for_known_state(domain)
        for files in directories:
            if files.id in domains:
                self._saved_state.reconcile(domains[files.id], files)
            self._reconcile_machine(files, domains.get(files.id))

    def _reconcile_machine(self, files: MachineDir, domain: Any) -> None:
        state = self._saved_state.state(domain, files) if domain is not None else MachineState.ABSENT
        if state in (MachineState.RUNNING, MachineState.PAUSED):
            run = self._events.adopt(files)
            if run.status.ready and run.status.exit_code is None:
                self._events.report_ready_again(files.id)
        elif files.read_status().running:
            self._events.report_stopped(files.id, StopReason.SAVED if state is MachineState.ASLEEP else _reason(domain))

    def _lifecycle(self, _connection: Any, domain: Any, event: int, detail: int, _opaque: object) -> None:
        machine_id = self._domains.machine_id(domain)
        if machine_id is None:
            return
        if event == libvirt.VIR_DOMAIN_EVENT_STARTED:
            self._events.report_started(machine_id)
        elif event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            self._events.report_stopped(machine_id, _STOPPED_DETAILS.get(detail, StopReason.CRASHED))
        elif event == libvirt.VIR_DOMAIN_EVENT_CRASHED:
            self._events.report_reset(machine_id)
        elif event == libvirt.VIR_DOMAIN_EVENT_UNDEFINED and machine_id not in self.deleting:
            self._events.report_stopped(machine_id, StopReason.LOST)

    def _rebooted(self, _connection: Any, domain: Any, _opaque: object) -> None:
        machine_id = self._domains.machine_id(domain)
        if machine_id is not None:
            self._events.report_reset(machine_id)

    def _qemu_shutdown(
        self,
        _connection: Any,
        domain: Any,
        _event: str,
        _s: int,
        _us: int,
        details: str | None,
        _opaque: object,
    ) -> None:
        machine_id = self._domains.machine_id(domain)
        if machine_id is not None and details and ("guest-reset" in details or "guest-panic" in details):
            self._events.report_reset(machine_id)


def _reason(domain: Any) -> StopReason:
    if domain is None:
        return StopReason.LOST
    try:
        return stop_reason_of(domain)
    except MachineNotFound:
        return StopReason.LOST


def _wait_for_known_state(domain: Any) -> None:
    """Wait until libvirt has attached to a domain's process, or found it dead.

    Right after it was opened, libvirt reports a process that died as `running`, until its own thread has tried the
    monitor. Balloon statistics use that monitor: once they succeed, the process exists.
    """
    deadline = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < deadline:
        try:
            if not domain.isActive():
                return
            domain.memoryStats()
            return
        except libvirt.libvirtError:
            time.sleep(0.1)
    log.warning("libvirt did not settle the state of %s", domain.name())
