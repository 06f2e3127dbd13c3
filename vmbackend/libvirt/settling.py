"""Settling machines that ran before a connection was opened, side by side and with one deadline.

Right after a connection is opened libvirt reports a process that died as running, until its own thread has tried the
monitor; of a process that does not answer (it is stopped, its disk hangs) it never finds out. So each running machine
is settled by a thread of its own. One that does not answer delays no other: it counts as running, its operations are
refused, and its thread goes on until it answers or has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import libvirt

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.record import MachineDir

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
_PAUSE = 0.1

# Reports what happened to one machine while there was no connection; its domain, None if libvirt has none.
Reconcile = Callable[[MachineDir, Any], None]


class Settling:
    """The settling of one connection's machines. The methods may be called from any thread."""

    def __init__(self, reconcile: Reconcile) -> None:
        self._reconcile = reconcile
        self._changed = threading.Condition()
        self._unsettled: set[str] = set()
        self._failure: Exception | None = None
        self._ended = False

    def settle_machines(self, machines: Iterable[tuple[MachineDir, Any]]) -> None:
        """Reconcile these machines. Return when all are settled, after SETTLE_SECONDS at the latest.

        Raise what a reconciliation raised.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        for files, domain in machines:
            if domain is None or not _is_active(domain):
                self._reconcile(files, domain)
                continue
            with self._changed:
                self._unsettled.add(files.id)
            threading.Thread(target=self._settle, args=(files, domain), name=f"settle-{files.id}", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: not self._unsettled or self._failure, deadline - time.monotonic())
            if self._failure:
                raise self._failure
            if self._unsettled:
                log.warning("machines that do not answer yet: %s", ", ".join(sorted(self._unsettled)))

    def require_settled(self, machine_id: str) -> None:
        """Raise BackendUnavailable for a machine whose process did not answer since the connection was opened.

        Its saved memory and the reports of its end must not be touched from two sides.
        """
        with self._changed:
            if machine_id in self._unsettled:
                raise BackendUnavailable("The machine's process does not answer.")

    def end(self) -> None:
        """End settling when the connection is closed: nothing more is reported. A thread may wait for libvirt for some
        time still.
        """
        with self._changed:
            self._ended = True

    def _settle(self, files: MachineDir, domain: Any) -> None:
        while not self._answers(domain):
            time.sleep(_PAUSE)
        with self._changed:
            if self._ended:
                return
        failure = None
        try:
            self._reconcile(files, domain)
        except Exception as error:  # raised by `settle_machines`, later only logged
            log.warning("machine %s could not be settled: %s", files.id, error)
            failure = error
        with self._changed:
            self._failure = failure or self._failure
            self._unsettled.discard(files.id)
            self._changed.notify_all()

    def _answers(self, domain: Any) -> bool:
        """Return whether libvirt has attached to the process, or found it dead; also True once the connection is
        closed.

        Balloon statistics use the monitor: once they succeed, the process exists. libvirt waits for 30 s if its own
        thread waits for the monitor.
        """
        try:
            if not self._ended and domain.isActive():
                domain.memoryStats()
        except libvirt.libvirtError as error:
            return bool(error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)
        return True


def _is_active(domain: Any) -> bool:
    try:
        return bool(domain.isActive())
    except libvirt.libvirtError:
        return True  # its thread finds out
