"""Places that stand for hosts: namespaces of network, mounts, processes and names, each with its own /run, on one
bridge."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from supervise.instance import ROOT
from tests.vm.client import until

NETWORK = IPv4Network("198.18.161.0/28")
HERE = NETWORK[1]
COMMAND_SECONDS = 300.0
_NAMESPACES = ("--net", "--mount", "--uts", "--pid")
# /sys shows the network of the namespace that mounted it. The control groups below it are those of all. The last
# command is the parent of all that lose theirs; since it ignores their ends, they leave no zombies.
_ENTER = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
umount -l /run/cgroup
rmdir /run/cgroup
hostname "$1"
ip link set lo up
trap '' CHLD
exec sleep infinity
"""
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).close()
    print("open")
except ConnectionRefusedError:
    print("refused")
except OSError:
    print("nothing")
"""


@dataclass(frozen=True)
class Place:
    """A host's namespaces, kept by the process `pid`."""

    name: str
    address: str
    pid: int

    def run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        """Run a command there and return its output."""
        inside = ["nsenter", "-t", str(self.pid), *_NAMESPACES, "--", *command]
        done = subprocess.run(
            inside, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout.strip()

    def connect(self, address: str, port: int) -> str:
        """`open`, `refused` or `nothing`: how a connection from there goes."""
        return self.run([sys.executable, "-c", textwrap.dedent(_CONNECT), address, str(port)])


@contextmanager
def places(*names: str) -> Iterator[list[Place]]:
    """These places, and the tests themselves, on one bridge."""
    bridge = f"mvh{os.getpid() % 10**6}"
    _ip("link", "add", bridge, "type", "bridge")
    try:
        _ip("address", "add", f"{HERE}/{NETWORK.prefixlen}", "dev", bridge)
        _ip("link", "set", bridge, "up")
        with _holders(names) as holders:
            yield [_join(bridge, number, name, holders[name]) for number, name in enumerate(names)]
    finally:
        _remove_links(bridge)


@contextmanager
def _holders(names: Sequence[str]) -> Iterator[dict[str, int]]:
    apart = ("unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc")
    command = ("setpriv", "--pdeathsig", "KILL", *apart, "--", "sh", "-c", _ENTER, "sh")
    made = {name: subprocess.Popen([*command, name]) for name in names}
    try:
        for process in made.values():
            until(lambda process=process: _first_process(process.pid), 10, "the namespaces are there")
        yield {name: _first_process(process.pid) for name, process in made.items()}
    finally:
        for process in made.values():
            process.kill()
            process.wait()


def _first_process(parent: int) -> int:
    """Return the process that keeps the namespaces, once they are complete; 0 until then."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return next((int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"), 0)


def _join(bridge: str, number: int, name: str, pid: int) -> Place:
    made = Place(name, str(NETWORK[2 + number]), pid)
    outer = f"{bridge}p{number}"
    _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _ip("link", "set", outer, "master", bridge, "up")
    made.run(["ip", "address", "add", f"{made.address}/{NETWORK.prefixlen}", "dev", "eth0"])
    made.run(["ip", "link", "set", "eth0", "up"])
    return made


def _remove_links(bridge: str) -> None:
    """Remove the bridge, and links into namespaces that the kernel has not ended yet."""
    for path in Path("/sys/class/net").glob(f"{bridge}*"):
        subprocess.run(["ip", "link", "delete", path.name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
