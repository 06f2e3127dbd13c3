"""The processes of an instance's own PostgreSQL, found by the data folder that they work in.

A server's processes write their titles over their environments in /proc, so the mark by which other processes of an
instance are found is not there. Imports nothing of the platform: launchers wait for it.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from supervise.orphans import MARKER, STATE, end_matching, environment_of

SOCKET = ".s.PGSQL.5432"
_PID_FILE = "postmaster.pid"
# Of that file, counted from 0: how far the server is. pg_ctl waits for it, too.
_STATUS_LINE = 7
_POLL_SECONDS = 0.05


def server_processes(data: Path) -> set[int]:
    """Return every process of a server of this data folder, those that a killed main process left included."""
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _works_in(entry, data)}


def is_ready(data: Path) -> bool:
    """Return whether a server of this data folder takes connections. A file that a killed one left counts for
    nothing.
    """
    pid, lines = _main_process(data)
    return pid is not None and len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"


def wait_until_ready(data: Path, seconds: float) -> bool:
    """Return whether a server of this data folder takes connections, after so many seconds at most."""
    deadline = time.monotonic() + seconds
    while not (ready := is_ready(data)) and time.monotonic() < deadline:
        hasten_end(data)
        time.sleep(_POLL_SECONDS)
    return ready


def hasten_end(data: Path) -> None:
    """End a server that was told to wait for the end of its connections, by a fast shutdown.

    So does SIGTERM, whoever sent it: pools would keep it for an hour, in which it takes no new connection.
    """
    main, lines = _main_process(data)
    if main is not None and len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "stopping":
        end_matching(lambda pid: pid == main and is_server_of(pid, data), signal.SIGINT, 0)


def serves_command(data: Path) -> bool:
    """Return whether the server of this data folder is one that a command has started for itself (postgres_server.py):
    it has no mark of supervised processes.
    """
    return any(MARKER not in values for values in _environments(data))


def has_main_process(data: Path) -> bool:
    """Return whether a server of this data folder works, or is about to; what a killed one left does not."""
    return bool(_environments(data))


def _environments(data: Path) -> list[dict[str, str]]:
    """Return the environment of the main process; a server's other processes have overwritten theirs."""
    found = (environment_of(pid) for pid in server_processes(data))
    return [values for values in found if STATE in values]


def end_server(data: Path, grace: float = 60.0) -> int:
    """End every process of a server of this data folder, and return how many there were.

    By a fast shutdown if the main process lives; those that a killed one left end at once, and what they have not
    finished the next start takes from the log of writes.
    """
    found = len(server_processes(data))
    main, _ = _main_process(data)
    if main is not None:
        end_matching(lambda pid: pid == main and is_server_of(pid, data), signal.SIGINT, grace)
    for sign in (signal.SIGQUIT, signal.SIGKILL):
        if server_processes(data):
            end_matching(lambda pid: is_server_of(pid, data), sign, 5.0)
    return found


def remove_traces(data: Path) -> None:
    """Remove what a killed server left: its next start would take another process that has its id for it.

    The caller holds the lock of the data folder, so that no server runs.
    """
    for name in (_PID_FILE, SOCKET, f"{SOCKET}.lock"):
        (data / name).unlink(missing_ok=True)


def is_server_of(pid: int, data: Path) -> bool:
    """Return whether a process is one of a server of this data folder."""
    return _works_in(Path(f"/proc/{pid}"), data)


def _works_in(entry: Path, data: Path) -> bool:
    try:
        return (entry / "comm").read_text().strip() == "postgres" and (entry / "cwd").samefile(data)
    except OSError:
        return False


def _main_process(data: Path) -> tuple[int | None, list[str]]:
    """Return the server's main process, None if it does not run, and the lines of its file."""
    try:
        lines = (data / _PID_FILE).read_text().splitlines()
        pid = int(lines[0])
    except (OSError, ValueError, IndexError):
        return None, []
    return (pid if is_server_of(pid, data) else None), lines
