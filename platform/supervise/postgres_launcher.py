"""The command that runs an instance's own PostgreSQL: `python -m supervise.postgres_launcher DATA CONFIGURATION
[--tied]`.

DATA is the data folder, to whose owner this process changes, as PostgreSQL does not run as root. CONFIGURATION is a
folder with files for it; the file LISTEN there has the address of this machine at which it listens, or none. `--tied`:
the server shuts down when the process that started this one dies, however it dies.

All processes of the server inherit the data folder as an open descriptor, with a lock on it. The server reaches the
folder by that descriptor, also below directories that its user may not search. And as long as any of its processes
lives no other process has the lock: what a killed server left is ended and removed by its holder alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

from supervise.orphans import DATABASE_ROLE, MARKER, ROLE, STATE
from supervise.postgres_processes import end_server, has_main_process, remove_traces, serves_command

# Debian's, one folder for each major version.
PROGRAMS = Path("/usr/lib/postgresql")
LISTEN = "listen"
_POLL_SECONDS = 0.1


def main(arguments: list[str]) -> None:
    """Clean up after a killed server, then become the server. Never returns."""
    data, configuration = Path(arguments[0]), Path(arguments[1])
    wanted = {path.name: path.read_bytes() for path in configuration.iterdir()}
    address = wanted.pop(LISTEN, b"").decode().strip()
    parent = os.getppid()
    is_tied = "--tied" in arguments
    descriptor = _locked_folder(data, is_tied=is_tied)
    remove_traces(data)
    become_owner(data)
    if is_tied:
        _end_with(parent)
    os.chdir(descriptor)
    for name, content in wanted.items():
        _write(Path(name), content)
    program = program_of(data_version(Path()), "postgres")
    # If its user cannot search the directories above, a server that looks for its program could not come back.
    os.chdir("/")
    command = [str(program), "-D", f"/proc/self/fd/{descriptor}"]
    # No network that was not opened, whatever the configuration says.
    options = (f"listen_addresses={address}", "unix_socket_directories=.", "unix_socket_permissions=0700")
    command += [part for option in options for part in ("-c", option)]
    os.execve(program, command, _environment())  # noqa: S606 - no shell is wanted


def data_version(data: Path) -> str:
    """Return the major version of a data folder. Raise OSError, and ValueError if its file was damaged."""
    version = (data / "PG_VERSION").read_text(errors="replace").strip()
    if not version.isdecimal():
        raise ValueError(f"its file PG_VERSION has {version!r}")
    return version


def program_of(version: str, name: str) -> Path:
    """Return a program of PostgreSQL's of a major version; it need not be installed."""
    return PROGRAMS / version / "bin" / name


def become_owner(folder: Path) -> None:
    """Give up root for the rights of the folder's owner."""
    if os.geteuid() != 0:
        return
    owner = folder.stat()
    os.setgroups([])
    os.setgid(owner.st_gid)
    os.setuid(owner.st_uid)


def _locked_folder(data: Path, *, is_tied: bool) -> int:
    """Return an inheritable descriptor of the folder, with its lock.

    A supervised process waits for the server of a command, as of one that migrates; any other is what a killed
    predecessor left. A command never ends a server that works: it uses it. Raise SystemExit.
    """
    descriptor = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_tied and has_main_process(data):
                raise SystemExit("Another server of this data folder was there first.") from None
            if not serves_command(data):
                end_server(data)
            time.sleep(_POLL_SECONDS)
        else:
            os.set_inheritable(descriptor, True)
            return descriptor


def _end_with(parent: int) -> None:
    """Ask the kernel for SIGINT, a fast shutdown, at the parent's death (PR_SET_PDEATHSIG is 1). It forgets that when
    a process changes its user, so this comes after.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGINT)
    if os.getppid() != parent:
        raise SystemExit("The command that needs the database has ended.")


def _write(path: Path, content: bytes) -> None:
    """Write the file only if it changes: so a full disk does not keep a server from starting with what it has."""
    if path.exists() and path.read_bytes() == content:
        return
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    beside.replace(path)


def _environment() -> dict[str, str]:
    """Return the environment without secrets: the server's user may have other processes on this host."""
    own = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC", STATE: os.environ[STATE]}
    if MARKER in os.environ:
        own |= {MARKER: os.environ[MARKER], ROLE: DATABASE_ROLE}
    return own


if __name__ == "__main__":
    main(sys.argv[1:])
