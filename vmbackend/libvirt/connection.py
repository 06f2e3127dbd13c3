"""The connection to libvirt: event loop, set-up of an embedded libvirt, reconnection."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import libvirt

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt import reaper
from vmbackend.libvirt.account import ensure_account
from vmbackend.libvirt.domain_folders import clean_folders
from vmbackend.libvirt.reach import reachable_directory
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.unfinished_starts import end_forgotten_machines, remove_unfinished_starts
from vmbackend.modes import restrict_mode, restrict_modes

log = logging.getLogger(__name__)

# For an embedded libvirt only: the qemu.conf of a daemon is left to its administrator (docs/operations.md).
# `user` is for probing QEMU's capabilities; every machine has a user of its own by its definition. `security_driver`
# switches off AppArmor and SELinux, not users.
QEMU_CONF = """\
user = "root"
group = "root"
security_driver = "none"
dynamic_ownership = 0
remember_owner = 0
namespaces = [ "mount" ]
cgroup_device_acl = [ "/dev/null", "/dev/zero", "/dev/urandom", "/dev/kvm" ]
seccomp_sandbox = 1
max_core = 0
max_processes = 1024
max_files = 2048
stdio_handler = "file"
"""
# Below lib/qemu: folders of machines, and what was left of them.
_OF_MACHINES = ("domain-", "channel", "removed-")
_KEEPALIVE_SECONDS = 5
_KEEPALIVE_COUNT = 3
_REOPEN_SECONDS = 2.0

# Both exist until the process ends: libvirt's event loop can be registered once, and an embedded libvirt stays on
# its root until then.
_process_lock = threading.Lock()
_loop_started = False
_embedded: tuple[Path, Path, IO[str]] | None = None  # root, the path of it that machines reach, lock
# Opening and closing an embedded libvirt about ten times in one process exhausts its table of drivers, so its only
# connection is kept and reused by later drivers of the process.
_embedded_connection: Any = None


class LibvirtConnection:
    """One connection. `on_connected` is called with each new connection before it is used."""

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
        """Raise BackendUnavailable while there is none."""
        connection = self._connection
        if connection is None:
            raise BackendUnavailable("The hypervisor is not connected.")
        return connection

    def open(self) -> None:
        """Connect. Raise BackendUnavailable; nothing stays open then, but this process keeps an embedded root."""
        self._settings.check()
        _start_event_loop()
        root = self._settings.embed_root
        if root is not None:
            _claim_root(root, self._settings.instance, self._settings.busy_root_seconds)
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
                # Not supported by local connections, which cannot be lost.
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
        # Called on libvirt's event loop thread, which the new connection needs: reopen on another one.
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
        if _embedded_connection is None and _embedded is not None:
            root, reachable, _ = _embedded
            # Machines read the key of their secrets below the root.
            connection = libvirt.open(f"qemu:///embed?root={reachable}")
            end_forgotten_machines(connection, root, {root, reachable})
            _embedded_connection = connection
        return _embedded_connection


def probe_capabilities(connection: Any, domain_type: str) -> str:
    """Let libvirt probe QEMU now (takes seconds, once per root and QEMU version) instead of at the first start.

    Return what it found, as XML. Raise BackendUnavailable.
    """
    try:
        return str(connection.getDomainCapabilities(None, "x86_64", "q35", domain_type))
    except libvirt.libvirtError as error:
        raise BackendUnavailable("The hypervisor does not support the QEMU machine type q35.") from error


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
        # libvirt prints every error to stderr besides raising it; they are logged where they are translated.
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


def _claim_root(root: Path, instance: str, timeout: float) -> None:
    """Lock and set up `root` for this process. Opening a root in use would break libvirt for the process's lifetime."""
    global _embedded  # noqa: PLW0603
    with _process_lock:
        if _embedded is not None:
            if _embedded[0] != root:
                raise BackendUnavailable("This process already uses another embedded libvirt root.")
            return
        ensure_account()
        for folder in (root / "etc", root / "lib" / "qemu"):
            folder.mkdir(parents=True, exist_ok=True)
        _restrict_root(root)
        lock = _lock_root(root, time.monotonic() + timeout)
        (root / "etc" / "qemu.conf").write_text(QEMU_CONF)
        reachable = reachable_directory(root, instance, "libvirt")
        remove_unfinished_starts(root, {root, reachable})
        clean_folders(root)
        reaper.start_reaper()
        _embedded = (root, reachable, lock)


def _restrict_root(root: Path) -> None:
    """Close what an earlier version made open to others: who may read a lock or pid file may lock it.

    Machines pass through `lib/qemu`, to folders of their own (`domain_folders.py`).
    """
    passed_through = (root / "lib", root / "lib" / "qemu")
    for folder in passed_through:
        folder.chmod(0o711)
    for folder in (root, *passed_through):
        for entry in folder.iterdir():
            if entry in passed_through or entry.name.startswith(_OF_MACHINES):
                continue
            restrict_modes(entry) if entry.is_dir() and not entry.is_symlink() else restrict_mode(entry, 0o600)


def _lock_root(root: Path, deadline: float) -> IO[str]:
    lock = (root / "owner.lock").open("w")
    os.fchmod(lock.fileno(), 0o600)  # every user who may open it may lock it
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _test_pid_file(root / "run" / "qemu" / "driver.pid")
            return lock
        except OSError:
            if time.monotonic() > deadline:
                lock.close()
                raise BackendUnavailable("Another process uses this host's libvirt root.") from None
            time.sleep(0.1)


def _test_pid_file(path: Path) -> None:
    """Raise OSError while a libvirt of another process has its pid file locked.

    Closing the file drops this process's record locks on it; there are none before libvirt is opened.
    """
    if path.exists():
        with path.open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
