"""Handling of libvirt's events, and of changes while there was no connection."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import libvirt
import libvirt_qemu

from vmbackend.driver import MachineState, StopReason
from vmbackend.libvirt.domain import Domains, stop_reason_or_lost
from vmbackend.libvirt.events import Events
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.settling import Settling

_STOPPED_DETAILS = {
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN: StopReason.SHUTDOWN,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_DESTROYED: StopReason.DESTROYED,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SAVED: StopReason.SAVED,
}


class EventWatcher:
    """Registers for libvirt's events on each new connection and reports what happened while there was none."""

    def __init__(self, domains: Domains, events: Events, saved_state: SavedStateManager) -> None:
        self._domains = domains
        self._events = events
        self._saved_state = saved_state
        self._registered: list[int] = []
        self._qemu_registered: int | None = None
        self._settling = Settling(self._reconcile_machine)
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
        self._settling.end()
        registered, self._registered = self._registered, []
        monitor, self._qemu_registered = self._qemu_registered, None
        for callback in registered:
            with suppress(libvirt.libvirtError):
                connection.domainEventDeregisterAny(callback)
        if monitor is not None:
            with suppress(libvirt.libvirtError):
                libvirt_qemu.qemuMonitorEventDeregister(connection, monitor)

    def reconcile_machines(self, connection: Any, directories: list[MachineDir]) -> None:
        """Report changes of machines that ran before. Blocks until libvirt's states are correct, as `settling` says."""
        self._settling.end()
        self._settling = Settling(self._reconcile_machine)
        domains = self._domains.list(connection)
        self._settling.settle_machines((files, domains.get(files.id)) for files in directories)

    def require_settled(self, machine_id: str) -> None:
        """Raise BackendUnavailable for a machine that has not answered since the connection was opened."""
        self._settling.require_settled(machine_id)

    def _reconcile_machine(self, files: MachineDir, domain: Any) -> None:
        if domain is not None:
            self._saved_state.reconcile(domain, files)
        state = self._saved_state.state(domain, files) if domain is not None else MachineState.ABSENT
        if state in (MachineState.RUNNING, MachineState.PAUSED):
            run = self._events.adopt(files)
            if run.status.ready and run.status.exit_code is None:
                self._events.report_ready_again(files.id)
        elif files.read_status().running:
            reason = StopReason.SAVED if state is MachineState.ASLEEP else stop_reason_or_lost(domain)
            self._events.report_stopped(files.id, reason)

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
