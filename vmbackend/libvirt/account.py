"""The account that libvirt's QEMU driver looks up, whichever one qemu.conf names."""

from __future__ import annotations

import os
import pwd
import time

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.process import run_tool

NAME = "libvirt-qemu"
COMMAND = (
    "useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/var/lib/libvirt",
    "--shell", "/usr/sbin/nologin", NAME,
)  # fmt: skip
ATTEMPTS = 10
PAUSE_SECONDS = 0.5


def ensure_account() -> None:
    """Create the account if it is missing. Debian has it in the package of the systemd units, which a host with an
    embedded libvirt need not have.

    If two processes do so at once, one fails at the lock of the accounts, or finds the other's; it tries again.
    Raise BackendUnavailable.
    """
    for attempt in range(1, ATTEMPTS + 1):
        if _exists():
            return
        if os.geteuid() != 0:
            raise BackendUnavailable("An embedded libvirt needs root.")
        try:
            run_tool(COMMAND)
        except BackendUnavailable:
            if attempt == ATTEMPTS:
                raise
            time.sleep(PAUSE_SECONDS)


def _exists() -> bool:
    try:
        pwd.getpwnam(NAME)
    except KeyError:
        return False
    return True
