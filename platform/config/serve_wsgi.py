"""Serves the api by granian: `python -m config.serve_wsgi [TARGET] (--fd N | --uds PATH) [--workers N] [--threads N]`.

granian opens its socket itself; it has no option for one that it inherits. A socket that outlives the server is what
lets requests wait while the server restarts (supervise/supervisord.py), so this is granian with that one difference.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.net import SocketHolder
from granian.server.mp import MPServer

TARGET = "config.wsgi:application"


class InheritedSocketServer(MPServer):  # type: ignore[misc]  # granian is not typed
    """Accepts connections on an inherited listening Unix socket, which it neither creates nor removes."""

    def __init__(self, *args: Any, fd: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._inherited_fd = fd

    @property
    def _bind_addr_fmt(self) -> str:
        return f"descriptor {self._inherited_fd}"

    def _init_shared_socket(self) -> None:
        """As the overridden method, which leaves the holder, the descriptor and the socket object behind."""
        self._sfd = self._inherited_fd
        self._shd = SocketHolder(self._sfd, True, self.backlog)
        self._sso = socket.socket(fileno=self._sfd)
        self._sso.set_inheritable(True)


def api_server(arguments: Sequence[str] | None = None) -> MPServer:
    """The server that the command line describes; `serve` runs it until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="serve_wsgi")
    parser.add_argument("target", nargs="?", default=TARGET)
    listener = parser.add_mutually_exclusive_group(required=True)
    listener.add_argument("--fd", type=int, help="a listening Unix socket that this process inherited")
    listener.add_argument("--uds", type=Path, help="the path of a Unix socket to create")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    options: dict[str, Any] = {
        "interface": Interfaces.WSGI,
        "workers": given.workers,
        "blocking_threads": given.threads,
        "respawn_failed_workers": True,
        "workers_kill_timeout": 10,
        # Also ends connections that idle so long (the maximum): the edge must have closed them before.
        "http1_settings": HTTP1Settings(header_read_timeout=60_000),
    }
    if given.fd is not None:
        return InheritedSocketServer(given.target, fd=given.fd, **options)
    return MPServer(given.target, uds=given.uds, uds_permissions=0o600, **options)


if __name__ == "__main__":
    api_server().serve()
