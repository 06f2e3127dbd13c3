"""Marks of loads in a machine's folder: a load that has not ended, and a clock that may be late after a slow one."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from vmbackend.errors import GuestUnreachable
from vmbackend.libvirt import domain
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.resync import resync_clock_and_entropy

log = logging.getLogger(__name__)


def end_unfinished_load(target: Any | None, files: MachineDir) -> None:
    """End the process of a load that failed and could not be ended then: it has no machine's identity.

    One that has woken from moved memory has it.
    """
    if files.loading.exists():
        if target is not None and not files.woken.exists():
            domain.destroy_domain(target)
        files.loading.unlink(missing_ok=True)


def end_unfinished_loads(connection: Any, domains: domain.Domains, directories: Iterable[MachineDir]) -> None:
    """End the processes of machines whose load a former process did not see to its end. Raise BackendUnavailable."""
    for files in directories:
        if files.loading.exists():
            log.warning("machine %s: its load from a template had not ended, and is undone", files.id)
            end_unfinished_load(domains.find_or_none(connection, files.id), files)


def set_late_clock(files: MachineDir) -> None:
    """Set the clock of a machine that was loaded so slowly that it may be wrong; the next call tries again."""
    if files.late_clock.exists():
        try:
            resync_clock_and_entropy(files)
            files.late_clock.unlink(missing_ok=True)
        except GuestUnreachable as error:
            log.warning("machine %s: its clock may be late: %s", files.id, error)
