"""Network namespaces that simulate guests, and their connection attempts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.vm.client import until
from tests.vm.outside import PORT
from vmbackend.libvirt.firewall import NetworkPort
from vmbackend.libvirt.network import Network
from vmbackend.policy import NetworkPolicy

INSTANCE = "fe0005"
NXDOMAIN, NOTHING = "nxdomain", "nothing"
# A short timeout: an allowed connection answers at once.
CONNECT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1.5) as c:
        print(c.recv(64).decode())
except OSError:
    print("nothing")
"""
RESOLVE = """
import socket, sys
name, server = sys.argv[1:]
asked = b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0"
for label in name.split("."):
    asked += bytes([len(label)]) + label.encode()
with socket.socket(type=socket.SOCK_DGRAM) as s:
    s.settimeout(3)
    s.connect((server, 53))
    try:
        s.send(asked + b"\\0\\0\\1\\0\\1")
        got = s.recv(512)
    except ConnectionRefusedError:
        sys.exit(print("refused"))
    except OSError:
        sys.exit(print("nothing"))
if got[3] & 15 == 3:
    print("nxdomain")
elif got[7]:
    print(socket.inet_ntoa(got[-4:]), int.from_bytes(got[-10:-6], "big"))
else:
    print("rcode", got[3] & 15)
"""


@dataclass(frozen=True)
class Guest:
    """A namespace with one interface, as a machine has it."""

    ip: str
    gateway: str
    pid: int

    def run(self, code: str, *arguments: object) -> str:
        command = ["nsenter", "-t", str(self.pid), "-n", sys.executable, "-c", textwrap.dedent(code)]
        return subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    def reaches(self, address: str, port: int = PORT) -> bool:
        return self.run(CONNECT, address, port) != NOTHING

    def resolve(self, name: str) -> str:
        """The address, or why there is none."""
        return self.run(RESOLVE, name, self.gateway).split()[0]


@contextmanager
def namespace() -> Iterator[int]:
    """The pid of a process with its own network namespace."""
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--", "sleep", "600"])
    try:
        until(lambda: _links(process.pid) == ["lo"], 10, "the namespace is there")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _links(pid: int) -> list[str]:
    shown = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "-j", "link"], capture_output=True, check=False)
    return [link["ifname"] for link in json.loads(shown.stdout)] if shown.returncode == 0 else []


@contextmanager
def namespaces() -> Iterator[Callable[[], int]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(namespace())


def apply_policy(
    network: Network, guest: Guest, *, generation: int = 1, before: int | None = None, **policy: object
) -> NetworkPort:
    port = NetworkPort("m5", guest.ip, NetworkPolicy(**policy), generation)  # type: ignore[arg-type]
    previous = NetworkPort("m5", guest.ip, port.policy, before) if before else None
    network.attach(port, previous)
    return port


def connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True
