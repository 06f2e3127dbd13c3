"""How much of the loop's time the packets of one guest take, and in how few pieces they are stored."""

from __future__ import annotations

import heapq

import pytest

from vmbackend.guest.ssh_limits import (
    CPU_BURST_SECONDS,
    CPU_SHARE,
    SLICE_SECONDS,
    TOTAL_CPU_SHARE,
    CpuBudget,
    TotalBudget,
)
from vmbackend.guest.ssh_process import MERGED_BYTES, MergedBacklog, MergedPieces


def test_a_budget_is_a_share_of_the_time_and_more_for_each_byte():
    now = [0.0]
    budget = CpuBudget(TotalBudget(lambda: now[0]))
    assert budget.spend_time(CPU_BURST_SECONDS, 0) == 0
    assert budget.spend_time(0.01, 0) == pytest.approx(0.01 / CPU_SHARE)
    now[0] = 0.01 / CPU_SHARE
    assert budget.spend_time(0.0, 0) == pytest.approx(0.0)
    assert budget.spend_time(0.1, 1_000_000) == pytest.approx(0.0)
    now[0] += 1000
    assert budget.spend_time(CPU_BURST_SECONDS, 0) == 0
    assert budget.spend_time(0.01, 0) > 0


class Loop:
    """A loop in simulated time that processes the packets of guests, one step of one guest after another."""

    def __init__(self) -> None:
        self.now = 0.0
        self.total = TotalBudget(lambda: self.now)
        self.used: dict[CpuBudget, float] = {}
        self.waits: dict[CpuBudget, float] = {}
        self._steps: list[tuple[float, int, CpuBudget, float, float]] = []

    def add_guest(self, step: float, pause: float) -> CpuBudget:
        """A guest whose steps take `step` seconds, with `pause` seconds between them in which it sends nothing."""
        guest = CpuBudget(self.total)
        self.used[guest] = self.waits[guest] = 0.0
        heapq.heappush(self._steps, (self.now, len(self.used), guest, step, pause))
        return guest

    def run_steps(self, seconds: float) -> None:
        """Also forgets what was used and waited before."""
        until = self.now + seconds
        self.used, self.waits = dict.fromkeys(self.used, 0.0), dict.fromkeys(self.waits, 0.0)
        while self.now < until:
            at, number, guest, step, pause = heapq.heappop(self._steps)
            self.now = max(self.now, at) + step
            wait = guest.spend_time(step, 0)
            self.used[guest] += step
            self.waits[guest] = max(wait, self.waits[guest])
            heapq.heappush(self._steps, (self.now + max(wait, pause), number, guest, step, pause))


def test_one_flooding_guest_gets_its_own_share():
    loop = Loop()
    liar = loop.add_guest(SLICE_SECONDS, 0.0)
    loop.run_steps(10)
    loop.run_steps(100)
    assert loop.used[liar] == pytest.approx(100 * CPU_SHARE, rel=0.02)


@pytest.mark.parametrize("pause", [0.0, 0.03], ids=["floods", "just below the own share"])
def test_ten_guests_get_equal_parts_of_the_total_and_no_one_else_waits(pause: float):
    loop = Loop()
    liars = [loop.add_guest(SLICE_SECONDS, pause) for _ in range(10)]
    honest = loop.add_guest(0.001, 0.05)
    loop.run_steps(10)
    loop.run_steps(100)
    assert sum(loop.used.values()) == pytest.approx(100 * TOTAL_CPU_SHARE, rel=0.05)
    assert [loop.used[liar] for liar in liars] == pytest.approx([loop.used[liars[0]]] * 10, rel=0.05)
    assert loop.waits[honest] == 0
    assert all(loop.waits[liar] for liar in liars)


def test_guests_that_are_silent_again_leave_their_parts_to_the_others():
    loop = Loop()
    for _ in range(9):
        loop.add_guest(SLICE_SECONDS, 1000.0)
    busy = [loop.add_guest(SLICE_SECONDS, 0.0) for _ in range(2)]
    loop.run_steps(10)
    loop.run_steps(100)
    assert [loop.used[guest] for guest in busy] == pytest.approx([100 * CPU_SHARE] * 2, rel=0.02)


def test_what_a_guest_used_while_there_was_enough_for_all_is_soon_forgotten():
    loop = Loop()
    busy = loop.add_guest(SLICE_SECONDS, 0.03)
    for _ in range(9):
        loop.add_guest(0.001, 0.05)
    loop.run_steps(1000)
    assert not any(loop.waits.values())
    loop.now += 10
    assert CpuBudget(loop.total).spend_time(1.0, 0) > 0
    assert busy.spend_time(0.001, 0) == 0


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
