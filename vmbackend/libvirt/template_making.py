"""Making of a boot template: a guest that has started its kernel and knows nothing of a machine, saved while it waits.

It is made in a domain and a directory of its own, which the inventory does not list; one at a time.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import libvirt

from vmbackend.errors import BackendError, BackendUnavailable
from vmbackend.guest.load_message import TEMPLATE_CONFIG
from vmbackend.libvirt import domain
from vmbackend.libvirt.confinement import Confinement
from vmbackend.libvirt.disks import MIB, write_atomically
from vmbackend.libvirt.domainxml import AGENT_PORT, EVENTS_PORT, REQUESTS_PORT
from vmbackend.libvirt.firewall import mac_for
from vmbackend.libvirt.identity import rename_values
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

# Not a valid machine id.
_MAKER = ".template"
# Longer than a kernel takes to start on a busy host.
_WAIT_SECONDS = 60.0
# What the guest still does after its line: it goes to sleep.
_SETTLE_SECONDS = 0.1
# A machine's own disk has another size, which its kernel learns when the template is loaded.
_DISK_MB = 64
_WAITING = b"waiting\n"
_POLL_SECONDS = 0.2
_READ_BYTES = 65536


class TemplateMaker:
    """Makes templates of one instance. Not thread-safe."""

    def __init__(self, settings: LibvirtSettings, access: Confinement) -> None:
        # The network's own address, which no machine has, and with it a user that no machine has.
        self._ip = str(settings.subnet.network_address)
        self._name = f"mvt-{settings.instance}-template"
        self._uuid = domain.uuid_for(settings.instance, _MAKER)
        self._tap = f"mvx{settings.instance}"
        self._files = MachineDir(settings.machines_dir, _MAKER)
        self._access = access
        self.stopping = threading.Event()  # ends the wait for a guest

    def clean_up(self, connection: Any) -> None:
        """End what a former process was making. Idempotent. Raises BackendUnavailable, OSError."""
        with suppress(libvirt.libvirtError):
            domain.destroy_domain(connection.lookupByUUIDString(self._uuid))
        if self._files.path.exists():
            self._files.remove()

    def save_waiting_guest(self, connection: Any, definition: str, path: Path) -> None:
        """Start a guest as `definition` (of a machine) says, and save it at `path` once it waits.

        Takes as long as a boot. Raises BackendError, OSError; nothing but a part of the file is left then.
        """
        self.clean_up(connection)
        self._write_files()
        try:
            with self._channels() as channels:
                with domain.translate_errors("make a template of"):
                    guest = connection.createXML(self._definition(definition), libvirt.VIR_DOMAIN_START_PAUSED)
                    guest.resume()
                self._await_line(channels, time.monotonic() + _WAIT_SECONDS)
                time.sleep(_SETTLE_SECONDS)
                with domain.translate_errors("save a template of"):
                    guest.saveFlags(str(path), None, 0)
        finally:
            with suppress(BackendError, OSError):
                self.clean_up(connection)

    def _write_files(self) -> None:
        self._files.create()
        write_atomically(self._files.config, TEMPLATE_CONFIG)
        with self._files.data_disk.open("wb") as disk:
            disk.truncate(_DISK_MB * MIB)
        self._access.give_files(self._files, self._ip)

    def _definition(self, definition: str) -> str:
        reachable = self._access.path_for
        values = {
            "name": self._name,
            "uuid": self._uuid,
            "machine": _MAKER,
            "label": self._access.label(self._ip) or "",
            "config": reachable(self._files.config),
            "mac": mac_for(self._ip),
            "tap": self._tap,
            "data": reachable(self._files.data_disk),
            "chain": "",
            "serial": reachable(self._files.console_pipe),
            "console": reachable(self._files.console_pipe),
            f"channel {AGENT_PORT}": reachable(self._files.agent_socket),
            f"channel {EVENTS_PORT}": reachable(self._files.events_pipe),
            f"channel {REQUESTS_PORT}": reachable(self._files.requests_pipe),
        }
        return rename_values(definition, {kind: str(value) for kind, value in values.items()})

    @contextmanager
    def _channels(self) -> Iterator[dict[int, str]]:
        """Open the pipes that the guest writes to; the console's output is read and dropped."""
        opened: dict[int, str] = {}
        try:
            for name in ("events", "console"):
                path = self._files.path / f"{name}.out"
                # For writing, too: otherwise the pipe would be at its end until the process opens it.
                opened[os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)] = name
            yield opened
        finally:
            for fd in opened:
                os.close(fd)

    def _await_line(self, channels: dict[int, str], deadline: float) -> None:
        """Wait until the guest says that it waits. Raise BackendUnavailable at the deadline (monotonic) or the end."""
        received = b""
        with selectors.DefaultSelector() as selector:
            for fd, name in channels.items():
                selector.register(fd, selectors.EVENT_READ, name)
            while time.monotonic() < deadline and not self.stopping.is_set():
                for key, _ in selector.select(_POLL_SECONDS):
                    data = os.read(key.fd, _READ_BYTES)
                    received = (received + data)[-_READ_BYTES:] if key.data == "events" else received
                if _WAITING in received:
                    return
        raise BackendUnavailable("A guest for a template did not start in time.")
