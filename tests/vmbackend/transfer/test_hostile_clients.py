"""Clients of a source that connect and say nothing, much, or in small pieces, while another host fetches."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.vmbackend.transfer.hosts import HERE, MIB, Hosts, new_key, random_file, running_hosts, until
from vmbackend.errors import DeadlineExceeded
from vmbackend.transfer import client, ssh
from vmbackend.transfer.clients import MAX_UNKNOWN, MAX_UNKNOWN_OF_ADDRESS

pytestmark = pytest.mark.host
ELSEWHERE = "127.0.0.2"  # the address of hostile clients


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with running_hosts(tmp_path) as made:
        random_file(made.sent / "disk", 8 * MIB)
        made.offer()
        yield made


def connected(hosts: Hosts, stack: ExitStack, address: str = ELSEWHERE) -> socket.socket:
    made = stack.enter_context(socket.create_connection((HERE, hosts.server.port), 20, (address, 0)))
    made.settimeout(30)
    return made


def is_ended(connection: socket.socket) -> bool:
    """Return whether the source ends a connection; what it says first is read."""
    with suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return True


def test_clients_that_say_nothing_are_ended_and_others_have_places(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        made = [connected(hosts, stack) for _ in range(MAX_UNKNOWN_OF_ADDRESS)]
        hosts.fetch()
        assert all(is_ended(connection) for connection in made)
    assert not hosts.server._clients._unknown


def test_two_hundred_connections_at_once_leave_a_place_to_another_host(hosts: Hosts) -> None:
    with ExitStack() as stack:
        made = [connected(hosts, stack) for _ in range(200)]
        until(lambda: len(hosts.server._clients._unknown) == MAX_UNKNOWN_OF_ADDRESS)
        hosts.fetch()
        ended = [is_ended(connection) for connection in made[MAX_UNKNOWN_OF_ADDRESS:]]
    assert len(ended) == 200 - MAX_UNKNOWN_OF_ADDRESS


def test_many_addresses_have_their_limit_too_and_what_was_logged_in_goes_on(hosts: Hosts, tmp_path: Path) -> None:
    fetched = threading.Event()
    thread = threading.Thread(target=lambda: (hosts.fetch(bytes_per_second=2 * MIB), fetched.set()))
    thread.start()
    until(lambda: bool(hosts.server._clients._known))
    with ExitStack() as stack:
        for number in range(200):
            connected(hosts, stack, f"127.0.1.{number + 1}")
        until(lambda: len(hosts.server._clients._unknown) == MAX_UNKNOWN)
        assert fetched.wait(60)
    thread.join()


@contextmanager
def flooding(hosts: Hosts, flood: Any) -> Iterator[None]:
    """A second host, to which something is offered, floods the source within the block."""
    folder = hosts.sent.with_name("other")
    folder.mkdir()
    key = folder.with_suffix(".key")
    hosts.server.offer("op_2", folder, new_key(key))
    ended, begun = threading.Event(), threading.Event()

    async def run() -> None:
        async with hosts.log_in("op_2", client_keys=[str(key)]) as connection:
            await flood(connection, begun, ended)

    def run_until_ended() -> None:
        with suppress(asyncssh.Error, OSError):
            asyncio.run(run())

    thread = threading.Thread(target=run_until_ended)
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


async def pieces_of_one_byte(connection: Any, begun: threading.Event, ended: threading.Event) -> None:
    process = await connection.create_process("x", encoding=None)
    process.channel._send_pktsize = 1
    begun.set()
    while not ended.is_set():
        process.stdin.write(bytes(200))
        await asyncio.sleep(0)


async def empty_packets(connection: Any, begun: threading.Event, ended: threading.Event) -> None:
    begun.set()
    while not ended.is_set():
        for _ in range(200):
            connection.send_debug("")
        await asyncio.sleep(0)


async def new_keys(connection: Any, begun: threading.Event, ended: threading.Event) -> None:
    begun.set()
    while not ended.is_set():
        connection._rekey_bytes = 0
        connection.send_debug("")
        await asyncio.sleep(0.001)


async def wanted_but_not_read(connection: Any, begun: threading.Event, ended: threading.Event) -> None:
    """Ask for everything at once, and take nothing of it."""
    process = await connection.create_process("x", encoding=None, window=1 << 31)
    connection._transport.pause_reading()
    begun.set()
    while not ended.is_set():
        await asyncio.sleep(0.01)
    del process


@pytest.mark.parametrize("flood", [pieces_of_one_byte, empty_packets, new_keys, wanted_but_not_read])
def test_beside_a_flood_an_honest_transfer_goes_on(hosts: Hosts, flood: Any) -> None:
    with flooding(hosts, flood):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        hosts.fetch()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (hosts.into / "disk").read_bytes() == (hosts.sent / "disk").read_bytes()
    assert grown < 100_000  # KiB, of both sides of the honest one


def test_a_target_that_takes_nothing_costs_no_memory(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its window is two gigabytes, and its connection takes nothing any more."""
    random_file(hosts.sent / "large", 200 * MIB)
    made: list[Any] = []
    before: list[int] = []

    async def noted(*arguments: Any, **options: Any) -> Any:
        made.append(await ssh.connect(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(client, "connect", noted)
    monkeypatch.setattr(client, "TARGET_WINDOW", 1 << 31)

    def stall(taken: int) -> None:
        if taken > MIB:
            made[0]._transport.pause_reading()
            before.append(resident())

    with pytest.raises(DeadlineExceeded):
        hosts.fetch(max_bytes=1 << 30, on_progress=stall, give_up=lambda: len(before) > 30)
    assert before[-1] - before[0] < 40 * MIB
    assert sum(path.stat().st_size for path in hosts.into.iterdir()) < 100 * MIB


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_vmhost_goes_on_beside_a_flood(hosts: Hosts) -> None:
    """The process's other threads have their turn."""
    with flooding(hosts, empty_packets):
        turns = 0
        until_time = time.monotonic() + 3
        while time.monotonic() < until_time:
            time.sleep(0.001)
            turns += 1
    assert turns > 50
