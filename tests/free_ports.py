"""Ports for servers that a test starts a moment later."""

from __future__ import annotations

import itertools
import random
import socket

# Below what the kernel gives to outgoing connections and to `bind` without a port (ip_local_port_range): there a port
# that was just found free is often taken by another process before the server binds it.
FIRST, LAST = 12_000, 32_000
# Each process counts on from a place of its own, so that two of them do not find the same port.
_candidates = itertools.count(random.SystemRandom().randrange(LAST - FIRST))


def free_port() -> int:
    """A loopback port that no socket has, neither of TCP nor of UDP; not given again by this process.

    Raises OSError where all are taken.
    """
    for candidate in itertools.islice(_candidates, LAST - FIRST):
        port = FIRST + candidate % (LAST - FIRST)
        if _is_free(port, socket.SOCK_STREAM) and _is_free(port, socket.SOCK_DGRAM):
            return port
    raise OSError(f"no free port from {FIRST} to {LAST}")


def _is_free(port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
