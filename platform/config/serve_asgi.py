"""The server of streams by uvicorn: `python -m config.serve_asgi [TARGET] (--fd N | --uds PATH)`.

As uvicorn's own command, with one difference: a server that stops first reads the requests of all connections that it
has accepted (as in config/serve_wsgi.py).
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from django.core.signals import request_started
from django.db import close_old_connections, reset_queries

from common.server_stop import cancel_tasks
from config.request_protocol import RequestProtocol
from config.socket_protocol import SocketProtocol

TARGET = "config.asgi:application"
# From the last accept to the end of connections without a request: the edge sends one as soon as it is connected.
DRAIN_SECONDS = 0.5
# For uploads that store how far they are.
STORE_SECONDS = 2.0
# WebSockets: bytes of a message, and how often and how long a client is asked whether it is there. One that reads
# slowly answers after all output that is on its way.
MAX_MESSAGE = 2 << 20
PING_SECONDS = 20.0
PONG_SECONDS = 120.0


class StreamsServer(uvicorn.Server):
    """uvicorn, which by itself closes accepted connections that have not sent anything yet."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await asyncio.sleep(DRAIN_SECONDS)
        try:
            await super().shutdown(sockets)
        finally:  # the process ends right after this, by the signal
            await cancel_tasks(STORE_SECONDS)


def streams_server(arguments: Sequence[str] | None = None) -> StreamsServer:
    """Return the server that a command line describes; `run` serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="serve_asgi")
    parser.add_argument("target", nargs="?", default=TARGET)
    listener = parser.add_mutually_exclusive_group(required=True)
    listener.add_argument("--fd", type=int, help="a listening Unix socket that this process inherited")
    listener.add_argument("--uds", type=Path, help="the path of a Unix socket to create")
    given = parser.parse_args(arguments)
    # They would ask a thread at the beginning of each request, for nothing: it begins with the request, and has no
    # connection yet.
    request_started.disconnect(close_old_connections)
    request_started.disconnect(reset_queries)
    config = uvicorn.Config(
        given.target,
        fd=given.fd,
        uds=str(given.uds) if given.uds else None,
        # Without it open event streams hold a stopping process for minutes.
        timeout_graceful_shutdown=3,
        access_log=False,
        # Its lines are then those of the application, in the form that is set, with the ids of the request.
        log_config=None,
        server_header=False,
        # Only the edge can open the socket, so its X-Forwarded-* are true.
        proxy_headers=True,
        forwarded_allow_ips="*",
        http=RequestProtocol,
        ws=SocketProtocol,
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PONG_SECONDS,
    )
    return StreamsServer(config)


if __name__ == "__main__":
    streams_server().run()
