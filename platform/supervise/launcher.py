"""Runs one supervised process: `python -m supervise.launcher NAME [--listener] -- COMMAND...`.

Before the command replaces this process, what a killed predecessor left is ended: a server's workers go on serving old
code after a kill -9 of their parent, and a pool's children go on taking tasks.
"""

from __future__ import annotations

import os
import sys

from supervise.orphans import MARKER, ROLE, end_orphans

# Where the command finds the listening socket that supervisord opened; the first one after the standard descriptors.
LISTENER_FD = 3


def main(arguments: list[str]) -> None:
    """Clean up after the predecessor, then become the command. Never returns."""
    split = arguments.index("--")
    name, options, command = arguments[0], arguments[1:split], arguments[split + 1 :]
    end_orphans(os.environ[MARKER], name)
    if "--listener" in options:
        _move_listener(LISTENER_FD)
    os.environ[ROLE] = name
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def _move_listener(descriptor: int) -> None:
    """supervisord passes a listening socket as descriptor 0, which Python closes in the processes of a pool."""
    os.dup2(0, descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


if __name__ == "__main__":
    main(sys.argv[1:])
