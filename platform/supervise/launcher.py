"""The command that runs one supervised process: `python -m supervise.launcher NAME [--listener] [--after DATA] --
COMMAND...`.

Before the command replaces this process, what a killed predecessor left is ended: a server's workers go on serving old
code after a kill -9 of their parent, and a pool's children go on taking tasks. `--after`: then the database server of
that data folder is waited for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from supervise.orphans import MARKER, ROLE, end_orphans
from supervise.postgres_processes import wait_until_ready

# The descriptor at which the command finds the listening socket that supervisord opened; the first one after the
# standard descriptors.
LISTENER_FD = 3
# The longest wait for the database server. A process that starts without it says so to its clients and tries again,
# which is better than to let them wait for a disk that is full or a log of writes that is long.
DATABASE_SECONDS = 30.0


def main(arguments: list[str]) -> None:
    """Clean up after the predecessor, then become the command. Never returns."""
    split = arguments.index("--")
    name, options, command = arguments[0], arguments[1:split], arguments[split + 1 :]
    end_orphans(os.environ[MARKER], name)
    if "--after" in options:
        wait_until_ready(Path(options[options.index("--after") + 1]), DATABASE_SECONDS)
    if "--listener" in options:
        _move_listener(LISTENER_FD)
    os.environ[ROLE] = name
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def _move_listener(descriptor: int) -> None:
    """Move the listening socket: supervisord passes it as descriptor 0, which Python closes in the processes of a
    pool.
    """
    os.dup2(0, descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


if __name__ == "__main__":
    main(sys.argv[1:])
