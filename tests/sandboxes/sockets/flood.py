"""Sends frames that are no message, or no useful one, 0.4 MB of them a second on each socket:
`python -m tests.sandboxes.sockets.flood SOCKET TARGET KIND SOCKETS [hasty]`, until it is killed. `hasty`: as many as
go, and a socket that is closed is back at once.

A process of its own: what it costs is not the time of the test that measures others.
"""

from __future__ import annotations

import base64
import os
import select
import socket
import sys
import threading
import time

MASK = bytes(4)
# What begins, and what is repeated.
KINDS = {
    "pings": (b"", b"\x89\x80" + MASK),
    "pongs": (b"", b"\x8a\x80" + MASK),
    "fragments": (b"\x01\x80" + MASK, b"\x00\x80" + MASK),
    "messages": (b"", b"\x81\x82" + MASK + b"{}"),
}
BLOCK = 60_000
HASTY = "hasty" in sys.argv
PAUSE_SECONDS = 0.001 if HASTY else BLOCK / 400_000


def connected(path: str, target: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(path)
    lines = [
        f"GET {target} HTTP/1.1", "Host: testserver", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}", "Sec-WebSocket-Version: 13", "", "",
    ]  # fmt: skip
    made.sendall("\r\n".join(lines).encode())
    assert made.recv(4096).startswith(b"HTTP/1.1 101")
    return made


def send_blocks(connection: socket.socket, first: bytes, frame: bytes) -> None:
    """Until the connection ends; answers are dropped."""
    left = first + frame * (BLOCK // len(frame))
    while True:
        readable, writable, _ = select.select([connection], [connection] if left else [], [], PAUSE_SECONDS)
        if readable and not connection.recv(1 << 16):
            return
        if writable:
            left = left[connection.send(left) :]
        if not left:
            time.sleep(PAUSE_SECONDS)
            left = frame * (BLOCK // len(frame))


def flood(path: str, target: str, kind: str) -> None:
    while True:
        try:
            with connected(path, target) as connection:
                send_blocks(connection, *KINDS[kind])
        except (OSError, AssertionError):
            pass
        time.sleep(0 if HASTY else 1)


if __name__ == "__main__":
    for _ in range(int(sys.argv[4])):
        threading.Thread(target=flood, args=sys.argv[1:4], daemon=True).start()
    sys.stdout.write("floods\n")
    sys.stdout.flush()
    time.sleep(3600)
