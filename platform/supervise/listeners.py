"""Listening sockets that outlive the processes behind them.

supervisord opens the socket of an `fcgi-program` and gives it to the process as descriptor 0, but closes it when the
process ends. Here it stays open: connections that arrive while the process restarts wait in the socket's queue, so the
edge never meets a failed dial. A socket whose process does not come back is closed, which ends what waits, so that the
edge responds with an error.
"""

from __future__ import annotations

import time

from supervisor import process
from supervisor.options import FastCGIGroupConfig
from supervisor.socket_manager import SocketManager
from supervisor.states import ProcessStates

# How long connections wait for a process that does not run; more than a start takes on a busy machine.
KEEP_SECONDS = 30.0


class KeptSocketManager(SocketManager):  # type: ignore[misc]  # supervisor has no types
    """A manager that leaves the socket open when the last process that uses it has ended."""

    def _close(self) -> None:
        """Called when the last process has ended."""

    def close_unused(self) -> None:
        """Close the socket if no process uses it; the next process opens another one in its place."""
        if self.is_prepared() and self.get_socket_ref_count() == 0:
            super()._close()


class KeptSocketGroup(process.FastCGIProcessGroup):  # type: ignore[misc]
    """One process and its listening socket."""

    def __init__(self, config: FastCGIGroupConfig) -> None:
        super().__init__(config, socketManager=KeptSocketManager)
        self._ran_at = time.monotonic()

    def transition(self) -> None:
        """Called by supervisord about once a second."""
        super().transition()
        now = time.monotonic()
        if any(item.state == ProcessStates.RUNNING for item in self.processes.values()):
            self._ran_at = now
        elif now - self._ran_at > KEEP_SECONDS:
            self.socket_manager.close_unused()


def keep_sockets_open() -> None:
    """Make supervisord use these groups; called before it reads its configuration."""
    # Looked up there when a group is made.
    process.FastCGIProcessGroup = KeptSocketGroup
