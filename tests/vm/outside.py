"""A network that stands for the internet: a namespace of its own behind the host, with a public test address."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from tests.vm.client import until

PORT, OTHER_PORT = 7000, 7001
# Sends each caller the address that it sees of it. Names are its own address; `ip-10-1-2-3.any.name` is 10.1.2.3, and
# a name below `tunnel.test` carries the data that a guest sends out; names below `silent.test` get no answer.
SERVER = f"""
import re, socket, socketserver, struct, sys, threading
class SendAddress(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(self.client_address[0].encode())
def answer(asked):
    labels, at = [], 12
    while asked[at]:
        labels.append(asked[at + 1:at + 1 + asked[at]].decode())
        at += 1 + asked[at]
    question = asked[12:at + 5]
    found = re.match("ip-([0-9-]+)$", labels[0])
    address = socket.inet_aton(found[1].replace("-", ".") if found else sys.argv[1])
    is_a = question[-4:-2] == struct.pack("!H", 1)
    head = asked[:2] + struct.pack("!HHHHH", 0x8180, 1, is_a, 0, 0)
    return head + question + (struct.pack("!HHHIH", 0xC00C, 1, 1, 600, 4) + address if is_a else b"")
class Dns(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        if b"silent" in data:
            return
        sock.sendto(answer(data), self.client_address)
for port in ({PORT}, {OTHER_PORT}):
    threading.Thread(target=socketserver.ThreadingTCPServer(("0.0.0.0", port), SendAddress).serve_forever).start()
socketserver.ThreadingUDPServer(("0.0.0.0", 53), Dns).serve_forever()
"""


@dataclass(frozen=True)
class Outside:
    """`address` and `second` are outside, `host` is the host's own address on the way there.

    `pid` is a process that lives there.
    """

    address: str
    host: str
    second: str
    pid: int = 0


def addresses(instance_id: str) -> Outside:
    """Those of an instance's simulated internet, whether it exists or not."""
    first = 4 * (int(instance_id, 16) % 63)
    return Outside(f"203.0.113.{first + 2}", f"203.0.113.{first + 1}", f"198.51.100.{first + 2}")


@contextmanager
def outside(instance_id: str) -> Iterator[Outside]:
    """The namespace exists as long as its server, which ends with this process; its link is removed with it."""
    made = addresses(instance_id)
    dying_with_us = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--")
    server = subprocess.Popen([*dying_with_us, sys.executable, "-c", SERVER, made.address])
    try:
        until(lambda: _is_apart(server.pid), 10, "the namespace is there")
        _join(instance_id, server.pid, made)
        until(lambda: _answers(made.address), 10, "the server outside answers the host")
        yield replace(made, pid=server.pid)
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
        (*inside, "ip", "address", "add", f"{made.second}/32", "dev", theirs),
        ("ip", "route", "replace", f"{made.second}/32", "via", made.address),
        # So that a reply to an address that was not translated would be routed too.
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
