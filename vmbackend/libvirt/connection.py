"""The connection to libvirt: event loop, embedded libvirt's needs, loss of the connection and its return."""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import libvirt

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt import reaper
from vmbackend.libvirt.process import run_tool
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

# Development only: a daemon's own qemu.conf with its security driver stays as its administrator wrote it.
_QEMU_CONF = """\
user = "root"
group = "root"
security_driver = "none"
dynamic_ownership = 0
remember_owner = 0
namespaces = []
stdio_handler = "file"
"""
_KEEPALIVE_SECONDS = 5
_KEEPALIVE_COUNT = 3
_REOPEN_SECONDS = 2.0

# Both last as long as the process: libvirt's event loop can be registered once, and an embedded libvirt stays on
# its root until the process ends, whatever is closed.
_process_lock = threading.Lock()
_loop_started = False
_embedded: tuple[Path, IO[str]] | None = None
# Opening and closing an embedded libvirt some ten times in one process exhausts its table of drivers, so its one
# connection is kept and shared by the drivers that come after each other.
_embedded_connection: Any = None


class LibvirtConnection:
    """One connection. `on_connected` runs after each opening, with the new connection, before others get it."""

    def __init__(
        self,
        settings: LibvirtSettings,
        on_connected: Callable[[Any], None],
        on_closing: Callable[[Any], None],
    ) -> None:
        self._settings = settings
        self._on_connected = on_connected
        self._on_closing = on_closing
        self._connection: Any = None
        self._closed = threading.Event()

    @property
    def connection(self) -> Any:
        """Raises BackendUnavailable while there is none."""
        connection = self._connection
        if connection is None:
            raise BackendUnavailable("The hypervisor is not connected.")
        return connection

    def open(self) -> None:
        """Connect. Raises BackendUnavailable; nothing stays open then (an embedded root stays this process's)."""
        self._settings.check()
        _start_event_loop()
        root = self._settings.embed_root
        if root is not None:
            _claim_root(root, self._settings.busy_root_seconds)
        self._closed.clear()
        self._connect()

    def close(self) -> None:
        self._closed.set()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._close_connection(connection)

    def _close_connection(self, connection: Any) -> None:
        _quietly(lambda: self._on_closing(connection))
        if self._settings.embed_root is None:
            _quietly(connection.unregisterCloseCallback)
            _quietly(connection.close)

    def _connect(self) -> None:
        try:
            connection = _open(self._settings)
        except libvirt.libvirtError as error:
            log.error("libvirt open: %s", error)
            raise BackendUnavailable("The hypervisor cannot be reached.") from error
        try:
            self._on_connected(connection)
            if self._settings.embed_root is None:
                # Not offered by every kind of connection: one without a wire cannot be lost.
                _quietly(lambda: connection.setKeepAlive(_KEEPALIVE_SECONDS, _KEEPALIVE_COUNT))
                _quietly(lambda: connection.registerCloseCallback(self._lost, None))
        except Exception as error:
            self._close_connection(connection)
            if isinstance(error, libvirt.libvirtError):
                log.error("libvirt prepare: %s", error)
                raise BackendUnavailable("The hypervisor cannot be used.") from error
            raise
        self._connection = connection

    def _lost(self, connection: Any, reason: int, opaque: object) -> None:
        # Runs on libvirt's event loop thread, which the new connection needs: reopen elsewhere.
        log.warning("the connection to libvirt was lost (reason %d)", reason)
        self._connection = None
        threading.Thread(target=self._reopen, name="libvirt-reopen", daemon=True).start()

    def _reopen(self) -> None:
        while not self._closed.wait(_REOPEN_SECONDS):
            try:
                self._connect()
            except BackendUnavailable:
                continue
            log.warning("libvirt is connected again")
            return


def _open(settings: LibvirtSettings) -> Any:
    global _embedded_connection  # noqa: PLW0603
    if settings.embed_root is None:
        return libvirt.open(settings.uri)
    with _process_lock:
        if _embedded_connection is None:
            _embedded_connection = libvirt.open(settings.uri)
        return _embedded_connection


def probe_capabilities(connection: Any, domain_type: str) -> None:
    """Let libvirt probe QEMU now (seconds, once per root and QEMU version) and not in the first start."""
    try:
        connection.getDomainCapabilities(None, "x86_64", "q35", domain_type)
    except libvirt.libvirtError as error:
        raise BackendUnavailable("The hypervisor offers no QEMU machine of type q35.") from error


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except libvirt.libvirtError as error:
        log.debug("libvirt: %s", error)


def _start_event_loop() -> None:
    global _loop_started  # noqa: PLW0603
    with _process_lock:
        if _loop_started:
            return
        # libvirt prints every error to stderr besides raising it; the log has them at the boundary.
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=_run_event_loop, name="libvirt-events", daemon=True).start()
        _loop_started = True


def _run_event_loop() -> None:
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError:
            log.exception("libvirt event loop")


def _claim_root(root: Path, patience: float) -> None:
    """Make `root` ready for this process. An attempt on a root in use would spoil libvirt for the process's life."""
    global _embedded  # noqa: PLW0603
    with _process_lock:
        if _embedded is not None:
            if _embedded[0] != root:
                raise BackendUnavailable("This process holds another embedded libvirt root already.")
            return
        _ensure_account()
        (root / "etc").mkdir(parents=True, exist_ok=True)
        lock = _lock_root(root, time.monotonic() + patience)
        (root / "etc" / "qemu.conf").write_text(_QEMU_CONF)
        reaper.start_reaper()
        _embedded = (root, lock)


def _lock_root(root: Path, deadline: float) -> IO[str]:
    lock = (root / "owner.lock").open("w")
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _test_pid_file(root / "run" / "qemu" / "driver.pid")
            return lock
        except OSError:
            if time.monotonic() > deadline:
                lock.close()
                raise BackendUnavailable("Another process holds this host's libvirt root.") from None
            time.sleep(0.1)


def _test_pid_file(path: Path) -> None:
    """Raises OSError while a libvirt of another process holds its pid file.

    Closing the file drops this process's own record locks on it; it has none, since it opened no libvirt yet.
    """
    if path.exists():
        with path.open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _ensure_account() -> None:
    """libvirt's QEMU driver looks this account up even where qemu.conf names another one.

    Debian makes it in the package that also brings the systemd units; a host without that package lacks it.
    """
    try:
        pwd.getpwnam("libvirt-qemu")
        return
    except KeyError:
        pass
    if os.geteuid() != 0:
        raise BackendUnavailable("An embedded libvirt needs root.")
    run_tool(["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/var/lib/libvirt",
         "--shell", "/usr/sbin/nologin", "libvirt-qemu"])  # fmt: skip
