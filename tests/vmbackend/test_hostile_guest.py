"""What a guest sends over its control channel costs its own session only, whatever it is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from vmbackend.errors import BackendError, GuestUnreachable
from vmbackend.guest import ssh_limits
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.guest.ssh import SSHGuestSession
from vmbackend.guest.ssh_limits import CPU_BURST_SECONDS, CPU_SHARE, CpuBudget
from vmbackend.guest.ssh_process import MERGED_BYTES, MergedBacklog, MergedPieces

SCRIPT = Path(__file__).with_name("hostile_server.py")
HONEST = ""


class Guests:
    """Guests of one pool, each with its lie."""

    def __init__(self, folder: Path, pool: GuestPool, stack: ExitStack) -> None:
        self._folder, self.pool, self._stack = folder, pool, stack

    def start(self, lie: str) -> GuestAddress:
        folder = self._folder / f"guest-{lie}"
        folder.mkdir()
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(folder / "host_key"))
        process = subprocess.Popen([sys.executable, str(SCRIPT), str(folder), lie], stderr=subprocess.DEVNULL)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        until = time.monotonic() + 30
        while not (folder / "port").exists() and time.monotonic() < until:
            time.sleep(0.02)
        line = key.export_public_key().decode().strip()
        return GuestAddress(f"guest {lie}", "127.0.0.1", int((folder / "port").read_text()), line)

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


LISTING_LIES = [
    "1,001 names",
    "an answer of 4 MiB",
    "names with extended attributes",
    "a name of 100 KiB",
    "extended attributes",
    "a long status",
    "an answer to no request",
    "version 6",
    "10,000 extensions",
    "a slow key exchange",
]


@pytest.mark.parametrize("lie", LISTING_LIES)
def test_an_answer_beyond_the_limits_ends_the_session_of_that_guest_only(guests: Guests, lie: str):
    liar, neighbour = guests.start(lie), guests.start(HONEST)
    assert [entry.name for entry in guests.call(neighbour, lambda session: session.list_directory("/"))[0]] == [
        "n0",
        "n1",
    ]
    with pytest.raises(GuestUnreachable):
        guests.call(liar, lambda session: session.list_directory("/"))
    assert guests.call(neighbour, lambda session: session.stat("/x")).size == 100_000


def test_an_answer_with_a_thousand_names_is_accepted(guests: Guests):
    entries, more = guests.call(guests.start("1,000 names"), lambda session: session.list_directory("/"))
    assert (len(entries), more) == (1000, False)


def test_a_directory_without_an_end_is_left_to_the_bounded_list_of_names(guests: Guests):
    with pytest.raises(BackendError):  # the server's `find` prints no names
        guests.call(guests.start("a directory without an end"), lambda session: session.list_directory("/x"))


def test_a_block_longer_than_requested_is_refused(guests: Guests):
    with pytest.raises(GuestUnreachable):
        guests.read(guests.start("more data than requested"), "/x")
    assert guests.read(guests.start(HONEST), "/x") == b"x" * 100_000


@pytest.mark.parametrize("lie", ["output in single bytes", "ignored packets"])
def test_a_flood_of_packets_slows_down_its_own_guest_only(guests: Guests, lie: str, monkeypatch: pytest.MonkeyPatch):
    waits: dict[CpuBudget, float] = {}
    spend = CpuBudget.spend_time

    def spend_time(budget: CpuBudget, seconds: float, received: int) -> float:
        wait = spend(budget, seconds, received)
        waits[budget] = max(wait, waits.get(budget, 0.0))
        return wait

    monkeypatch.setattr(CpuBudget, "spend_time", spend_time)
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


def test_a_budget_is_a_share_of_the_time_and_more_for_each_byte():
    now = [0.0]
    budget = CpuBudget(lambda: now[0])
    assert budget.spend_time(CPU_BURST_SECONDS, 0) == 0
    assert budget.spend_time(0.01, 0) == pytest.approx(0.01 / CPU_SHARE)
    now[0] = 0.01 / CPU_SHARE
    assert budget.spend_time(0.0, 0) == pytest.approx(0.0)
    assert budget.spend_time(0.1, 1_000_000) == pytest.approx(0.0)
    now[0] += 1000
    assert budget.spend_time(CPU_BURST_SECONDS, 0) == 0
    assert budget.spend_time(0.01, 0) > 0


def test_single_bytes_are_kept_in_few_pieces_in_their_order():
    sent = bytes(number % 251 for number in range(1 << 18))
    pieces = MergedPieces()
    for byte in sent:
        pieces.append(bytes([byte]))
    pieces.append(EOFError())
    pieces.append(b"after")
    assert b"".join(pieces[:-2]) == sent
    assert len(pieces) == len(sent) // MERGED_BYTES + 2


def test_single_bytes_of_two_kinds_are_kept_in_few_pieces():
    backlog = MergedBacklog()
    for number in range(1 << 17):
        backlog.append((bytes([number % 251]), None))
        backlog.append((bytes([number % 241]), 1))
    assert b"".join(data for data, kind in backlog if kind is None) == bytes(n % 251 for n in range(1 << 17))
    assert b"".join(data for data, kind in backlog if kind == 1) == bytes(n % 241 for n in range(1 << 17))
    assert len(backlog) <= 2 * (1 << 17) // MERGED_BYTES + 2
