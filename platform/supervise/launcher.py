"""Runs one supervised process: `python -m supervise.launcher NAME [--socket PATH] -- COMMAND...`.

Before the command replaces this process, what a killed predecessor left is removed: a server's workers go on
serving old code after a kill -9 of their parent, a pool's children go on taking tasks, and a socket file without a
server keeps the next one from binding.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from supervise.orphans import MARKER, ROLE, end_orphans


def main(arguments: list[str]) -> None:
    """Clean up after the predecessor, then become the command. Never returns."""
    split = arguments.index("--")
    name, options, command = arguments[0], arguments[1:split], arguments[split + 1 :]
    end_orphans(os.environ[MARKER], name)
    if options[:1] == ["--socket"]:
        _remove_dead_socket(Path(options[1]))
    os.environ[ROLE] = name
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def _remove_dead_socket(path: Path) -> None:
    """Remove a socket file without a server; one that answers stays."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
