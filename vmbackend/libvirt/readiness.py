"""Waiting until a guest is ready."""

from __future__ import annotations

import socket
import time

from vmbackend.errors import DeadlineExceeded
from vmbackend.guest.bootconfig import CONTROL_PORT
from vmbackend.libvirt.events import Events


def wait_for_guest(events: Events, machine_id: str, ip: str, deadline: float) -> None:
    """Wait until the guest is ready; `deadline` on the monotonic clock. Raise MachineExited, DeadlineExceeded.

    The guest reports it once its control port listens; probing that port, too, would cost the guest a process. Only the
    report of a machine that an earlier driver started may be lost.
    """
    if not events.was_adopted(machine_id):
        events.wait_ready(machine_id, deadline)
        return
    while not _has_ssh_banner(ip, min(2.0, deadline - time.monotonic())):
        events.raise_if_exited(machine_id)
        if time.monotonic() >= deadline:
            raise DeadlineExceeded("The machine was not ready in time.")
        events.wait_stopped(machine_id, 0.02)


def _has_ssh_banner(ip: str, seconds: float) -> bool:
    """Return whether an SSH server answers on the control port within `seconds`."""
    try:
        with socket.create_connection((ip, CONTROL_PORT), timeout=max(0.05, seconds)) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
