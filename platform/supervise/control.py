"""Starts and stops an instance's supervisord and reads the states of its processes."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any, cast

from config.env import Env, variable
from edge.caddy import caddyfile
from supervise.configuration import process_environment, write_configuration
from supervise.files import UMASK, write_private
from supervise.instance import ROOT, Instance, InstanceError
from supervise.orphans import DATABASE_ROLE, MARKER, end_orphans, environment_of, other_folder
from supervise.postgres import data_folder, write_server_configuration
from supervise.postgres_processes import end_server, serves_command
from supervise.processes import processes
from supervise.redis_configuration import write_redis_configuration
from supervise.subnets import own_addresses
from supervise.supervisor_calls import call_supervisor

# More than any process may take.
STOP_SECONDS = 240.0
# They stop in this order, all others at once between them: nothing comes in any more, and what the others need is there
# to the end.
_FIRST, _LAST = "edge", (DATABASE_ROLE, "redis")
_POLL_SECONDS = 0.05
_UP = ("STARTING", "RUNNING", "BACKOFF", "STOPPING")


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State of one process in supervisord: RUNNING, STARTING, BACKOFF, STOPPING, STOPPED, EXITED, FATAL."""

    name: str
    state: str
    pid: int
    description: str


@contextmanager
def exclusive_control(instance: Instance, what: str = "control") -> Iterator[None]:
    """Hold the instance's lock: one command at a time starts or stops it. Freed by the kernel if we die."""
    path = instance.run_dir / f"{what}.lock"
    # A file system that only reads, as after an error of its disk: what runs there must be stopped all the same.
    with path.open("r" if path.exists() else "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def supervisor_pid(instance: Instance) -> int | None:
    """Return the instance's running supervisord; a pid file from before a crash or a reboot is ignored."""
    try:
        pid = int((instance.run_dir / "supervisord.pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if environment_of(pid).get(MARKER) == instance.id and "supervisord" in _arguments(pid) else None


def process_states(instance: Instance) -> list[ProcessState]:
    """Return every process of a running instance; an empty list if supervisord does not answer."""
    rows = cast(list[dict[str, Any]], _call(instance, "getAllProcessInfo") or [])
    return [ProcessState(row["name"], row["statename"], row["pid"], row["description"]) for row in rows]


def _call(instance: Instance, method: str, *arguments: object) -> object:
    return call_supervisor(instance.run_dir / "supervisor.sock", method, *arguments)


def _caddyfile(instance: Instance, settings: Env) -> str:
    try:
        return caddyfile(settings, instance.run_dir)
    except ValueError as error:
        raise InstanceError(f"{variable('public_url')}: {error}") from error


def start_supervisord(instance: Instance, settings: Env, *, tied: bool) -> subprocess.Popen[bytes]:
    """Start supervisord with every process of the instance; the caller holds `exclusive_control`.

    `tied`: supervisord gets SIGTERM when the calling thread dies, however it dies. Orphans of a killed supervisord are
    ended first. Raise InstanceError if the port is taken, or the instance runs from another folder (a restored one
    beside its original); then nothing was started.
    """
    require_only_folder(instance)
    _end_orphans(instance)
    _require_port(instance, settings)
    _write_configurations(instance, settings)
    configuration = write_configuration(instance, processes(instance, settings))
    for stale in ("supervisord.pid", "supervisor.sock"):
        (instance.run_dir / stale).unlink(missing_ok=True)
    with (instance.run_dir / "supervisord.out").open("wb") as output:
        return subprocess.Popen(
            # --silent: not also to stdout, a file that nothing rotates.
            [sys.executable, "-m", "supervise.supervisord", "--nodaemon", "--silent", "-c", str(configuration)],
            cwd=ROOT,
            umask=UMASK,
            env=process_environment(instance, settings, supervised=True),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C reaches the whole foreground group; only the foreground command decides what it means.
            start_new_session=True,
            preexec_fn=_die_with_parent if tied else None,  # noqa: PLW1509 - no thread has been started yet
        )


def _write_configurations(instance: Instance, settings: Env) -> None:
    """Write those of database, Redis and edge."""
    if settings.has_own_server:
        write_server_configuration(instance, settings)
    if settings.has_own_redis:
        write_redis_configuration(instance, settings)
    write_private(instance.run_dir / "Caddyfile", _caddyfile(instance, settings))


def restart_processes(instance: Instance, settings: Env, names: Collection[str]) -> None:
    """Start processes of a running instance again, with configurations written anew; the caller holds
    `exclusive_control`. They come up one after the other, those first that others need.
    """
    _write_configurations(instance, settings)
    for row in process_states(instance):
        if row.name in names:
            _stop_together(instance, [row.name], lambda _: None)
            _call(instance, "startProcess", row.name, False)


def stop_instance(instance: Instance, say: Callable[[str], None]) -> bool:
    """Stop every process of this instance and nothing else; the caller holds `exclusive_control`.

    Works in every state: all processes, some, a supervisord that does not answer, or orphans of a killed one. Returns
    whether anything ran. Raise InstanceError if the instance runs from another folder.
    """
    require_only_folder(instance)
    pid = supervisor_pid(instance)
    if pid is not None:
        _end_supervisor(instance, pid, say)
    orphans = _end_orphans(instance)
    if orphans:
        say(f"ended {orphans} orphan process{'es' if orphans > 1 else ''}")
    for name in ("supervisord.pid", "supervisor.sock"):
        with suppress(OSError):  # stale ones do no harm
            (instance.run_dir / name).unlink(missing_ok=True)
    return pid is not None or orphans > 0


def _end_orphans(instance: Instance) -> int:
    """End what outlived its supervisor, the database server last; that of a command, as of one that migrates, stays.

    Return how many there were.
    """
    ended, data = end_orphans(instance.id, grace=20.0), data_folder(instance)
    return ended if serves_command(data) else ended + end_server(data)


def require_only_folder(instance: Instance) -> None:
    """Raise InstanceError if processes of this id have another folder: we would take them for orphans of ours."""
    other = other_folder(instance.id, str(instance.state))
    if other:
        raise InstanceError(
            f"Instance {instance.id} runs from {other}, and {instance.state} is the same one, restored or copied. "
            f"Only one of them may be on a host: make down STATE={other}"
        )


def _end_supervisor(instance: Instance, pid: int, say: Callable[[str], None]) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if supervisor_pid(instance) != pid:
            return
        _stop_processes(instance, say)
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        _wait_for_end(descriptor)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _stop_processes(instance: Instance, say: Callable[[str], None]) -> None:
    """Stop several at a time, as supervisord stops one after the other; it ends what this leaves."""
    listed = [row.name for row in process_states(instance)]
    others = [name for name in listed if name not in (_FIRST, *_LAST)]
    for names in ([_FIRST], others, *([name] for name in _LAST)):
        _stop_together(instance, [name for name in names if name in listed], say)


def _stop_together(instance: Instance, names: list[str], say: Callable[[str], None]) -> None:
    for name in names:
        _call(instance, "stopProcess", name, False)
    deadline, shown = time.monotonic() + STOP_SECONDS, ""
    while time.monotonic() < deadline:
        stopping = ", ".join(row.name for row in process_states(instance) if row.name in names and row.state in _UP)
        if not stopping:
            return
        if not shown:
            say(f"stopping {stopping}")
            shown = stopping
        time.sleep(_POLL_SECONDS)


def _wait_for_end(descriptor: int) -> None:
    # A pidfd turns readable when its process has ended, reaped or not.
    select.select([descriptor], [], [], STOP_SECONDS)


def _require_port(instance: Instance, settings: Env) -> None:
    """Raise InstanceError if the edge could not listen now."""
    own = own_addresses()
    # Asked for, as an instance that was opened to other machines lets its addresses be ones that are not there yet.
    if own and _is_of_one_network_card(settings.bind) and settings.bind not in own:
        raise InstanceError(_listening_problem(instance.port, settings.bind, OSError(errno.EADDRNOTAVAIL, "")))
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.bind, instance.port))
        except OSError as error:
            raise InstanceError(_listening_problem(instance.port, settings.bind, error)) from error


def _is_of_one_network_card(address: str) -> bool:
    try:
        parsed = IPv4Address(address)
    except AddressValueError:
        return False  # IPv6
    return not (parsed.is_loopback or parsed.is_unspecified)


def _listening_problem(port: int, bind: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use by another program; choose one with PORT=..."
    if error.errno == errno.EACCES:
        return f"Port {port} may not be opened by this user; choose one above 1023 with PORT=..."
    return f"{variable('bind')}: {bind!r} is not an address of this machine."


def _die_with_parent() -> None:
    """Ask the kernel for SIGTERM at the parent's death, in the child before exec (PR_SET_PDEATHSIG is 1)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
