"""What a guest sends over its control channel costs its own session only, whatever it is."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from vmbackend.errors import GuestCommandInvalid, GuestUnreachable
from vmbackend.guest import ssh_limits
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.guest.ssh import SSHGuestSession
from vmbackend.guest.ssh_limits import (
    CpuBudget,
)
from vmbackend.guest.walks import MAX_PAGE_BYTES

SCRIPT = Path(__file__).with_name("hostile_server.py")
HONEST = ""


class Guests:
    """Guests of one pool, each with its lie."""

    def __init__(self, folder: Path, pool: GuestPool, stack: ExitStack) -> None:
        self._folder, self.pool, self._stack = folder, pool, stack

    def start(self, lie: str, name: str = "") -> GuestAddress:
        name = name or lie
        folder = self._folder / f"guest-{name}"
        folder.mkdir()
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(folder / "host_key"))
        process = subprocess.Popen([sys.executable, str(SCRIPT), str(folder), lie], stderr=subprocess.DEVNULL)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        until = time.monotonic() + 120
        while not (folder / "port").exists() and time.monotonic() < until:
            time.sleep(0.02)
        line = key.export_public_key().decode().strip()
        return GuestAddress(f"guest {name}", "127.0.0.1", int((folder / "port").read_text()), line)

    def start_several(self, count: int, lie: str) -> list[GuestAddress]:
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(lambda number: self.start(lie, f"{lie} {number}"), range(count)))

    def call(self, address: GuestAddress, fn: Callable[[GuestSession], Any]) -> Any:
        return self.pool.call(address, fn, timeout=60)

    def read(self, address: GuestAddress, path: str) -> bytes:
        return b"".join(self.pool.stream(address, lambda session: session.read(path), timeout=60))


@contextmanager
def guests_of(folder: Path) -> Iterator[Guests]:
    key = folder / "key"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(key))
    pool = GuestPool(lambda address: SSHGuestSession(address, key))
    with ExitStack() as stack:
        stack.callback(pool.close)
        yield Guests(folder, pool, stack)


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[Guests]:
    with guests_of(tmp_path) as running:
        yield running


LIES = [
    "two names",
    "no name",
    "an answer of 4 MiB",
    "a name with extended attributes",
    "a name of 8 KiB",
    "extended attributes",
    "a long status",
    "an answer to no request",
    "version 6",
    "10,000 extensions",
    "a slow key exchange",
    "packets of one byte",
]


async def one_block() -> AsyncIterator[bytes]:
    yield b"x"


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_beyond_the_limits_ends_the_session_of_that_guest_only(guests: Guests, lie: str):
    liar, neighbour = guests.start(lie), guests.start(HONEST)
    assert guests.call(neighbour, lambda session: session.stat("/")).type == "directory"
    with pytest.raises(GuestUnreachable):  # asks for the file's attributes, and where a link leads
        guests.call(liar, lambda session: session.write("/link", one_block()))
    assert guests.call(neighbour, lambda session: session.stat("/x")).size == 100_000


@pytest.mark.parametrize("lie", ["a name with a slash", "a name of 1 KiB", "no name"])
def test_a_listing_with_a_name_that_no_directory_has_is_refused(guests: Guests, lie: str):
    with pytest.raises(GuestUnreachable):
        guests.call(guests.start(lie), lambda session: session.list_directory("/"))
    entries, more = guests.call(guests.start(HONEST), lambda session: session.list_directory("/"))
    assert ([(entry.path, entry.type, entry.size) for entry in entries], more) == ([("/n0", "file", 3)], False)


def test_a_page_has_fewer_entries_if_they_are_long(guests: Guests):
    """Ten thousand links of the longest kind were 350 MiB of a response, which took 1.4 GiB to make."""
    guest, path, found = guests.start("1,000 links"), "/" + "a" * 3000, list[str]()
    for _ in range(3):
        after = found[-1] if found else ""
        page, more = guests.call(guest, lambda session, after=after: session.list_directory(path, after=after))
        assert sum(len(entry.path) + len(entry.target or "") for entry in page) <= MAX_PAGE_BYTES
        found += [entry.name for entry in page]
        if not more:
            break
    assert found == [f"{number:03d}" for number in range(1000)]


def test_what_a_guest_says_of_a_command_is_printable(guests: Guests):
    """It becomes part of rows and logs: PostgreSQL stores no NUL, and terminals obey control characters."""
    guest = guests.start("a refusal with control characters")
    with pytest.raises(GuestCommandInvalid) as refused:
        guests.call(guest, lambda session: session.execute(["true"]))
    assert refused.value.message.endswith("no ??[2J? such ? program")


def test_a_server_whose_version_is_no_text_is_unreachable(guests: Guests):
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        address = GuestAddress("guest", "127.0.0.1", server.getsockname()[1], line)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-\xff\r\n")
                while connection.recv(1000):
                    pass

        with ThreadPoolExecutor(1) as threads:
            threads.submit(answer)
            with pytest.raises(GuestUnreachable):
                guests.call(address, lambda session: session.execute(["true"]))


def test_a_link_that_leads_to_a_relative_path_is_refused(guests: Guests):
    """The search for its parents would not end."""

    async def content() -> AsyncIterator[bytes]:
        yield b"x"

    with pytest.raises(GuestUnreachable):
        guests.call(guests.start("a relative path"), lambda session: session.write("/link", content()))


def test_a_block_longer_than_requested_is_refused(guests: Guests):
    with pytest.raises(GuestUnreachable):
        guests.read(guests.start("more data than requested"), "/x")
    assert guests.read(guests.start(HONEST), "/x") == b"x" * 100_000


def longest_waits(monkeypatch: pytest.MonkeyPatch) -> dict[CpuBudget, float]:
    """The longest time, in seconds, that each guest had to wait from now on."""
    waits: dict[CpuBudget, float] = {}
    spend = CpuBudget.spend_time

    def spend_time(budget: CpuBudget, seconds: float, received: int) -> float:
        wait = spend(budget, seconds, received)
        waits[budget] = max(wait, waits.get(budget, 0.0))
        return wait

    monkeypatch.setattr(CpuBudget, "spend_time", spend_time)
    return waits


@pytest.mark.parametrize("lie", ["output in single bytes", "ignored packets"])
def test_a_flood_of_packets_slows_down_its_own_guest_only(guests: Guests, lie: str, monkeypatch: pytest.MonkeyPatch):
    waits = longest_waits(monkeypatch)
    monkeypatch.setattr(ssh_limits, "CPU_BURST_SECONDS", 0.05)
    liar, neighbour = guests.start(lie), guests.start(HONEST)

    async def flooded() -> None:
        flood = asyncio.ensure_future(
            guests.pool.acall(liar, lambda session: session.execute(["flood"], timeout=50.0), 60)
        )
        while not any(waits.values()):
            assert not flood.done()
            await asyncio.sleep(0.01)
        for _ in range(5):
            result = await guests.pool.acall(neighbour, lambda session: session.execute(["true"]), 60)
            assert result.stdout == b"done\n"
            await guests.pool.acall(neighbour, lambda session: session.stat("/x"), 60)
        assert not flood.done()
        flood.cancel()

    asyncio.run(flooded())
    assert any(waits.values())


def test_ten_flooding_guests_share_one_budget(guests: Guests, monkeypatch: pytest.MonkeyPatch):
    """Each of them stays below its own share: together they must wait all the same."""
    waits = longest_waits(monkeypatch)
    monkeypatch.setattr(ssh_limits, "CPU_BURST_SECONDS", 0.05)
    monkeypatch.setattr(ssh_limits, "CPU_SHARE", 1.0)
    monkeypatch.setattr(ssh_limits, "TOTAL_CPU_SHARE", 0.1)
    liars, neighbour = guests.start_several(10, "ignored packets"), guests.start(HONEST)

    async def flooded() -> None:
        floods = [
            asyncio.ensure_future(guests.pool.acall(liar, lambda session: session.execute(["flood"], timeout=50.0), 60))
            for liar in liars
        ]
        while sum(1 for wait in waits.values() if wait) < len(liars):
            assert not any(flood.done() for flood in floods)
            await asyncio.sleep(0.01)
        for _ in range(5):
            result = await guests.pool.acall(neighbour, lambda session: session.execute(["true"]), 60)
            assert result.stdout == b"done\n"
            await guests.pool.acall(neighbour, lambda session: session.stat("/x"), 60)
        assert not any(flood.done() for flood in floods)
        for flood in floods:
            flood.cancel()

    asyncio.run(flooded())


def test_a_guest_that_asks_without_reading_the_answers_is_disconnected(guests: Guests, monkeypatch: pytest.MonkeyPatch):
    guest = guests.start(HONEST)
    assert guests.call(guest, lambda session: session.execute(["true"])).stdout == b"done\n"
    monkeypatch.setattr(ssh_limits, "MAX_UNSENT", -1)
    with pytest.raises(GuestUnreachable):
        guests.call(guest, lambda session: session.execute(["true"]))


def test_steps_of_one_packet_lose_nothing(guests: Guests, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ssh_limits, "SLICE_SECONDS", 0.0)
    packets: list[int] = []
    continue_later = ssh_limits.LimitedConnection._continue

    def count(connection: ssh_limits.LimitedConnection) -> None:
        packets.append(connection._packets)
        continue_later(connection)

    monkeypatch.setattr(ssh_limits.LimitedConnection, "_continue", count)
    guest = guests.start(HONEST)
    assert guests.read(guest, "/x") == b"x" * 100_000
    assert set(packets) == {1}
