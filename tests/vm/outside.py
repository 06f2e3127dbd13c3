"""A network that stands for the internet: a namespace of its own behind the host, with a public test address."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.vm.client import until

PORT = 7000
# Tells each caller the address that it sees of it.
SERVER = f"""
import socketserver
class Tell(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(self.client_address[0].encode())
socketserver.ThreadingTCPServer(("0.0.0.0", {PORT}), Tell).serve_forever()
"""


@dataclass(frozen=True)
class Outside:
    """`address` is outside, `host` is the host's own address on the way there."""

    address: str
    host: str


@contextmanager
def outside(instance_id: str) -> Iterator[Outside]:
    """The namespace lives as long as its server, and that dies with this process; its link goes with it."""
    first = 4 * (int(instance_id, 16) % 63)
    made = Outside(address=f"203.0.113.{first + 2}", host=f"203.0.113.{first + 1}")
    dying_with_us = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--")
    server = subprocess.Popen([*dying_with_us, sys.executable, "-c", SERVER])
    try:
        until(lambda: _is_apart(server.pid), 10, "the namespace is there")
        _join(instance_id, server.pid, made)
        until(lambda: _answers(made.address), 10, "the server outside answers the host")
        yield made
    finally:
        server.kill()
        server.wait()
        subprocess.run(["ip", "link", "delete", f"mvo{instance_id}"], capture_output=True, check=False)


def _join(instance_id: str, pid: int, made: Outside) -> None:
    ours, theirs, inside = f"mvo{instance_id}", f"mvp{instance_id}", ("nsenter", "-t", str(pid), "-n")
    for command in (
        ("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs),
        ("ip", "link", "set", theirs, "netns", str(pid)),
        ("ip", "address", "add", f"{made.host}/30", "dev", ours),
        ("ip", "link", "set", ours, "up"),
        (*inside, "ip", "address", "add", f"{made.address}/30", "dev", theirs),
        (*inside, "ip", "link", "set", theirs, "up"),
        # So that an answer to an address that was not translated would find its way too.
        (*inside, "ip", "route", "add", "default", "via", made.host),
    ):
        subprocess.run(command, check=True)


def _is_apart(pid: int) -> bool:
    shown = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "-j", "link"], capture_output=True, check=False)
    return shown.returncode == 0 and [link["ifname"] for link in json.loads(shown.stdout)] == ["lo"]


def _answers(address: str) -> bool:
    with suppress(OSError), socket.create_connection((address, PORT), timeout=1) as connection:
        return bool(connection.recv(64))
    return False
