"""The connections that the guest's relay passes on (`relay_links.c`), on this host: how many, with which options."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.compiled import compile_program
from tests.free_ports import free_port

SOURCES = Path(__file__).parents[2] / "vmbackend" / "guest" / "src"
MAIN = Path(__file__).with_name("relay_main.c")
FLAGS = ("-static", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
PATIENCE = 60
PIDFD_GETFD = 438
MAX_PORT_LINKS = 256  # of relay.h

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="looking at the sockets of a process needs root")


class Relay:
    """A relay to programs on two ports, which the test is."""

    def __init__(self, program: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.programs = [stack.enter_context(socket.create_server(("127.0.0.1", free_port()))) for _ in range(2)]
        for listener in self.programs:
            listener.settimeout(PATIENCE)
        ports = [str(listener.getsockname()[1]) for listener in self.programs]
        self.process = stack.enter_context(subprocess.Popen([program, *ports], stdout=subprocess.PIPE))
        stack.callback(self.process.kill)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"

    def connect(self, which: int) -> socket.socket:
        address = ("127.0.0.2", self.programs[which].getsockname()[1])
        return self._stack.enter_context(socket.create_connection(address, timeout=PATIENCE))

    def pair(self, which: int) -> tuple[socket.socket, socket.socket]:
        """A client and the program's end of its connection."""
        client = self.connect(which)
        return client, self._stack.enter_context(self.programs[which].accept()[0])

    def sockets(self) -> Iterator[socket.socket]:
        """Its own connected sockets, opened here, too."""
        pid, libc = os.pidfd_open(self.process.pid), ctypes.CDLL(None, use_errno=True)
        self._stack.callback(os.close, pid)
        for place in Path(f"/proc/{self.process.pid}/fd").iterdir():
            if str(place.readlink()).startswith("socket:"):
                fd = libc.syscall(PIDFD_GETFD, pid, int(place.name), 0)
                assert fd >= 0, os.strerror(ctypes.get_errno())
                found = self._stack.enter_context(socket.socket(fileno=fd))
                with suppress(OSError):
                    found.getpeername()
                    yield found


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    program = tmp_path / "relay"
    compile_program(program, FLAGS, [MAIN, SOURCES / "relay_links.c"], SOURCES)
    with ExitStack() as stack:
        yield Relay(program, stack)


def passes(client: socket.socket, program: socket.socket) -> bool:
    """Whether bytes pass both ways."""
    for one, other in ((client, program), (program, client)):
        one.sendall(b"said")
        other.settimeout(PATIENCE)
        if other.recv(4, socket.MSG_WAITALL) != b"said":
            return False
    return True


def refuses(client: socket.socket, seconds: float = PATIENCE) -> bool:
    """Whether it is reset; within the time nothing is said where it is not."""
    client.settimeout(seconds)
    with suppress(TimeoutError):
        try:
            return client.recv(1) == b""
        except ConnectionResetError:
            return True
    return False


def test_small_answers_do_not_wait_for_acknowledgements(relay: Relay) -> None:
    assert passes(*relay.pair(0))
    assert [found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for found in relay.sockets()] == [1, 1]


def test_clients_that_are_gone_without_a_word_are_found_and_leave(relay: Relay) -> None:
    """As after a pause, a sleep, or with an edge that is lost. Programs are in the machine itself: the kernel knows."""
    client, program = relay.pair(0)
    assert passes(client, program)
    port = client.getsockname()[1]
    (found,) = (found for found in relay.sockets() if found.getpeername()[1] == port)
    assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    assert [found.getsockopt(socket.IPPROTO_TCP, name) for name in names] == [30, 10, 3]


def test_a_port_with_as_many_silent_connections_as_it_may_have_is_no_burden_for_another(relay: Relay) -> None:
    silent = [relay.pair(0) for _ in range(MAX_PORT_LINKS)]
    beyond = relay.connect(0)
    assert refuses(beyond), "it does not wait in front of those for other ports"
    assert passes(*relay.pair(1))
    for end in silent[0]:
        end.close()
    deadline = time.monotonic() + PATIENCE
    while refuses(again := relay.connect(0), seconds=0.1):
        assert time.monotonic() < deadline
    assert passes(again, relay.programs[0].accept()[0])
    assert all(passes(*pair) for pair in silent[1:])
