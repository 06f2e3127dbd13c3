"""Calls of an instance's supervisord, over its Unix socket."""

from __future__ import annotations

import xmlrpc.client
from http.client import HTTPException
from pathlib import Path

from supervisor.xmlrpc import SupervisorTransport, UnixStreamHTTPConnection

CALL_SECONDS = 10.0


class _BoundedConnection(UnixStreamHTTPConnection):  # type: ignore[misc]  # no types
    """A supervisord that does not run, as one that was stopped by a signal, takes connections and answers none."""

    def __init__(self, socket: Path) -> None:
        super().__init__("localhost")
        self.socketfile = str(socket)

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(CALL_SECONDS)


def call_supervisor(socket: Path, method: str, *arguments: object) -> object:
    """Return the supervisor's answer; None if it refuses or does not answer within CALL_SECONDS."""
    transport = SupervisorTransport(None, None, f"unix://{socket}")
    transport._get_connection = lambda: _BoundedConnection(socket)
    proxy = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
    try:
        return getattr(proxy.supervisor, method)(*arguments)
    except (OSError, HTTPException, xmlrpc.client.Error):
        return None
    finally:
        transport.close()
