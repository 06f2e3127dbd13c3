"""The server of the api by granian: `python -m config.serve_wsgi [TARGET] (--fd N | --uds PATH) [--workers N]
[--threads N] [--log-format FORMAT]`.

Two things that granian has no option for, so that a restart fails no request: it inherits a listening socket that
outlives it (supervise/listeners.py), and a worker that stops first reads the requests of all connections that it has
accepted. By itself granian closes those that have not sent anything yet; the edge cannot know that nothing was read,
and so never repeats such a request.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from granian import _signals
from granian._granian import WorkerSignal
from granian.constants import Interfaces
from granian.net import SocketHolder
from granian.server.mp import MPServer

from config.log_settings import FORMATS, server_logging

TARGET = "config.wsgi:application"
# From the last accept to the end of connections without a request: the edge sends one as soon as it is connected.
DRAIN_SECONDS = 0.5
TO_END = {signal.SIGTERM, signal.SIGINT}


class ApiServer(MPServer):
    """granian on an inherited listening socket, or on one of its own (`fd` None)."""

    # None until the socket is there; granian leaves them without types.
    _sfd: Any
    _shd: Any
    _sso: Any

    def __init__(self, *args: Any, fd: int | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._inherited_fd = fd

    @property
    def _bind_addr_fmt(self) -> str:
        return str(super()._bind_addr_fmt) if self._inherited_fd is None else f"descriptor {self._inherited_fd}"

    def _init_shared_socket(self) -> None:
        """As the overridden method, which leaves the descriptor, its holder and the socket object behind."""
        if self._inherited_fd is None:
            super()._init_shared_socket()  # type: ignore[no-untyped-call]
            return
        self._sfd = self._inherited_fd
        self._shd = SocketHolder(self._sfd, True, self.backlog)  # type: ignore[call-arg]  # the stub has no arguments
        self._sso = socket.socket(fileno=self._sfd)
        self._sso.set_inheritable(True)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        The target is loaded once, here: workers are forks, also one that replaces another.
        """

        def serve_as_worker(*arguments: Any) -> None:
            # Looked up when the worker begins to serve.
            _signals.set_sync_signals = lambda: _draining_signals(self._sfd)
            MPServer._spawn_wsgi_worker(*arguments)

        import_module(str(self.target).partition(":")[0])
        _reset_signals_of_workers()
        self.serve(spawn_target=serve_as_worker)


def _reset_signals_of_workers() -> None:
    """Let a worker that does not serve yet end at once, from its first moment.

    It inherits the main process's handlers, which do nothing in it: it would serve on, until it is killed.
    """

    def reset() -> None:
        for number in TO_END:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TO_END)

    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, TO_END),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, TO_END),
        after_in_child=reset,
    )


def _draining_signals(listener_fd: int) -> WorkerSignal:
    """Return the stop event of a worker. SIGTERM and SIGINT end its accepting at once; DRAIN_SECONDS later it is set.

    A thread waits for them. A handler would run when the main thread wakes up, which it does not if the signal comes
    just before it begins to wait; with threads that want the interpreter's lock that is likely.
    """
    stop, unreachable = WorkerSignal(), _unreachable_listener()
    # The threads of the server are started after this, and inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, TO_END)

    def drain() -> None:
        signal.sigwait(TO_END)
        # Only this process's descriptor: new connections wait in the queue for other processes.
        os.dup2(unreachable.fileno(), listener_fd)
        time.sleep(DRAIN_SECONDS)
        stop.set()

    threading.Thread(target=drain, daemon=True, name="drain").start()
    return stop


def _unreachable_listener() -> socket.socket:
    """Return a listening socket that no process connects to: accepting finds nothing, without an error."""
    made = socket.socket(socket.AF_UNIX)
    # An abstract name that the kernel chooses: a full disk keeps no worker from starting.
    made.bind("")
    made.listen(0)
    made.setblocking(False)
    return made


def api_server(arguments: Sequence[str] | None = None) -> ApiServer:
    """Return the server that a command line describes."""
    parser = argparse.ArgumentParser(prog="serve_wsgi")
    parser.add_argument("target", nargs="?", default=TARGET)
    listener = parser.add_mutually_exclusive_group(required=True)
    listener.add_argument("--fd", type=int, help="a listening Unix socket that this process inherited")
    listener.add_argument("--uds", type=Path, help="the path of a Unix socket to create")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log-format", choices=FORMATS, default=FORMATS[0])
    given = parser.parse_args(arguments)
    return ApiServer(
        given.target,
        fd=given.fd,
        uds=given.uds,
        uds_permissions=0o600,
        interface=Interfaces.WSGI,
        workers=given.workers,
        blocking_threads=given.threads,
        respawn_failed_workers=True,
        workers_kill_timeout=10,
        log_dictconfig=server_logging(given.log_format, "_granian"),
    )


if __name__ == "__main__":
    api_server().run()
