"""Listening sockets that supervisord keeps open while the processes behind them restart."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from supervisor.datatypes import UnixStreamSocketConfig
from supervisor.states import ProcessStates

from supervise import control, listeners
from supervise.instance import Instance
from supervise.processes import Process
from tests.commands.running import start
from tests.commands.test_supervise import wait_until
from tests.processes import is_running

# Answers every connection with its process id, on the descriptor that its command names.
SERVER = """
import os, socket, sys, time
listener = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))
while True:
    connection, _ = listener.accept()
    connection.sendall(str(os.getpid()).encode())
    connection.close()
"""


def answer(path: Path) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        return int(connection.recv(100))


def test_a_connection_that_meets_a_restart_is_served_by_the_next_process(
    make_instance: Callable[[str], Instance],
) -> None:
    instance = make_instance("one")
    path = instance.run_dir / "a.sock"
    command = (sys.executable, "-c", f"exec({SERVER!r})", "--uds", str(path))
    start(instance, [Process("a", command, start_seconds=1, socket=str(path))])
    wait_until(path.exists)
    seen = [answer(path)]
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        os.kill(seen[-1], number)
        wait_until(lambda: not is_running(seen[-1]))
        # Connects at once; the answer comes from the next process.
        seen.append(answer(path))
    assert len(set(seen)) == 4
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    control.stop_instance(instance, lambda _: None)
    with pytest.raises(ConnectionRefusedError):
        answer(path)


def test_the_socket_of_a_process_that_does_not_come_back_is_closed(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(short_dir / "a.sock")
    options = SimpleNamespace(logger=None)
    config = SimpleNamespace(socket_config=UnixStreamSocketConfig(path), options=options, process_configs={})
    group = listeners.KeptSocketGroup(config)
    process = SimpleNamespace(state=ProcessStates.RUNNING, transition=lambda: None)
    group.processes = {"a": process}
    used = group.socket_manager.get_socket()
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(path)
        waiting.settimeout(0)
        del used
        process.state = ProcessStates.BACKOFF
        group.transition()
        # The process has ended a moment ago: the connection waits.
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
        monkeypatch.setattr(listeners, "KEEP_SECONDS", -1)
        used = group.socket_manager.get_socket()
        group.transition()
        # A process that is starting may still serve it.
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
        del used
        group.transition()
        with pytest.raises(ConnectionResetError):
            waiting.recv(1)
    with socket.socket(socket.AF_UNIX) as refused:
        assert refused.connect_ex(path) != 0
        again = group.socket_manager.get_socket()
        refused.connect(path)
        assert again.fileno() > 0
