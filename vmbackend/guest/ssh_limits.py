"""SSH connections to guests that may send anything: what their packets may cost the loop that all guests share.

asyncssh processes all that it received in one step, however many packets that is, and answers requests of the server
without a limit. Here a step ends after `SLICE_SECONDS`, and a guest whose packets cost more than its budget is read
more slowly: TCP then makes it wait, and no other guest. All guests together have a budget too, so that any number of
them leaves time for the process's own work; while it is spent, those wait that took more than an equal part of it.

Relies on internals of asyncssh 2.24: `_recv_data`, `_recv_pkthdr`, `_inpbuf`, and `_send_pktsize` of channels;
tests/vmbackend/test_hostile_guest.py fails if they change.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import asyncssh
from asyncssh.connection import SSHConnection

# A step ends between two packets; the most expensive single packet takes a few milliseconds.
SLICE_SECONDS = 0.004
# The share of the loop's time for the packets of one guest, and what the guest may have saved.
CPU_SHARE = 0.2
CPU_BURST_SECONDS = 0.25
# The same for the packets of all guests together, and what each may have saved of its equal part of that.
TOTAL_CPU_SHARE = 0.5
EQUAL_BURST_SECONDS = 0.02
# A guest has an equal part while it sends packets, and for as long after the last one.
ACTIVE_SECONDS = 1.0
# Bytes are sent because a caller wants them: bulk data costs less than this, small packets twenty times as much.
SECONDS_PER_BYTE = 100e-9
# dropbear sends at most 35,000 bytes in a packet. A larger key exchange only costs time.
MAX_PACKET = 36 * 1024
# Bytes that a guest must accept in a packet: dropbear accepts 32 KiB. A block of a file is sent in one step, however
# many packets it takes: in those of one byte that is seconds.
MIN_SENT_PACKET = 16 * 1024
# Unsent bytes: windows allow half a mebibyte for each channel; the rest are answers to requests of the guest.
MAX_UNSENT = 4 << 20
MAX_DEFERRED = 10_000  # packets that wait for the end of a key exchange
MAX_UNPROCESSED = 1 << 20
# One fast algorithm each: the server chooses among those that are offered, and some take a tenth of a second.
ALGORITHMS: dict[str, Any] = {
    "server_host_key_algs": ["ssh-ed25519"],
    "kex_algs": ["curve25519-sha256", "curve25519-sha256@libssh.org"],
    "encryption_algs": ["chacha20-poly1305@openssh.com"],
    "mac_algs": ["hmac-sha2-256"],
    "compression_algs": None,
}


class _Savings:
    """CPU time that is earned as a share of the passing time, saved up to a limit, and spent; negative is debt."""

    def __init__(self, now: float, limit: float, max_debt: float = math.inf) -> None:
        self._saved, self._at, self._max_debt = limit, now, max_debt

    def spend_time(self, now: float, *, seconds: float, earned: float, share: float, limit: float) -> float:
        """Return how long the debt lasts; `earned` in seconds, besides the share."""
        saved = min(limit, self._saved + (now - self._at) * share + earned) - seconds
        self._saved, self._at = max(saved, -self._max_debt), now
        return max(0.0, -self._saved / share)


class TotalBudget:
    """The CPU time that the packets of all guests of the process may cost together."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._savings = _Savings(clock(), CPU_BURST_SECONDS)
        self._active: dict[CpuBudget, float] = {}  # the time of its last packets; in the order of these times

    def spend_time(self, guest: CpuBudget, now: float, seconds: float, earned: float) -> tuple[float, float]:
        """Charge one guest's packets; return how long the total is spent, and a guest's equal part of the loop."""
        self._active.pop(guest, None)
        self._active[guest] = now
        for other, at in list(self._active.items()):
            if now - at <= ACTIVE_SECONDS:
                break
            self._active.pop(other, None)
        wait = self._savings.spend_time(
            now, seconds=seconds, earned=earned, share=TOTAL_CPU_SHARE, limit=CPU_BURST_SECONDS
        )
        return wait, TOTAL_CPU_SHARE / len(self._active)


_process_total = TotalBudget()


class CpuBudget:
    """The CPU time that one guest's packets may cost, over all its connections: a share of the time, and more for each
    byte.
    """

    def __init__(self, total: TotalBudget | None = None) -> None:
        self._total = total or _process_total
        now = self._total.clock()
        self._own = _Savings(now, CPU_BURST_SECONDS)
        # More than the equal part is no debt for long if there was enough for all.
        self._equal = _Savings(now, EQUAL_BURST_SECONDS, max_debt=CPU_BURST_SECONDS)

    def spend_time(self, seconds: float, received: int) -> float:
        """Charge `seconds` of CPU for `received` bytes; return how long the guest's next packets must wait.

        A guest that takes less than its equal part never waits because of others.
        """
        now, earned = self._total.clock(), received * SECONDS_PER_BYTE
        total_wait, part = self._total.spend_time(self, now, seconds, earned)
        equal_wait = self._equal.spend_time(now, seconds=seconds, earned=earned, share=part, limit=EQUAL_BURST_SECONDS)
        own_wait = self._own.spend_time(now, seconds=seconds, earned=earned, share=CPU_SHARE, limit=CPU_BURST_SECONDS)
        return max(own_wait, min(total_wait, equal_wait))


class LimitedPackets(SSHConnection):
    """A connection of either side that processes packets for `SLICE_SECONDS` at a time, within its peer's budget."""

    def limit_packets(self, budget: CpuBudget, max_packet: int = MAX_PACKET) -> None:
        """Begin with it; called before anything is received."""
        self._max_recv_pktlen = max_packet
        self._budget = budget
        self._received = 0
        self._until = 0.0
        self._interrupted = False
        self._packets = 0  # of this step
        self._continuation: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes, datatype: int | None = None) -> None:
        """Process received packets, or keep them while the guest waits."""
        self._received += len(data)
        super().data_received(data, datatype)

    def _recv_data(self) -> None:
        if self._continuation is not None:
            return
        self._interrupted, self._packets = False, 0
        self._until = time.perf_counter() + SLICE_SECONDS
        begun = time.thread_time()
        super()._recv_data()
        received, self._received = self._received, 0
        wait = self._budget.spend_time(time.thread_time() - begun, received)
        if self._is_over_memory():
            self.abort()
        elif self._transport is not None and (self._interrupted or wait):
            self._transport.pause_reading()
            self._continuation = self._loop.call_later(wait, self._continue)

    def _recv_pkthdr(self) -> bool:
        """Called before each packet: ends the step when its time is over, but not before its first packet."""
        self._interrupted = self._packets > 0 and time.perf_counter() >= self._until
        if self._interrupted or not super()._recv_pkthdr():
            return False
        self._packets += 1
        return True

    def _continue(self) -> None:
        self._continuation = None
        if self._transport is not None:
            self._transport.resume_reading()
            self._recv_data()

    def _is_over_memory(self) -> bool:
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return unsent > MAX_UNSENT or len(self._inpbuf) > MAX_UNPROCESSED or len(self._deferred_packets) > MAX_DEFERRED


class LimitedConnection(LimitedPackets, asyncssh.SSHClientConnection):
    """A connection to a guest."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: asyncssh.SSHClientConnectionOptions, budget: CpuBudget
    ) -> None:
        super().__init__(loop, options, wait="auth")
        self.limit_packets(budget)


def require_long_packets(connection: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[Any]) -> None:
    """Raise asyncssh.ProtocolError, and ends the connection, if the new channel takes short packets only."""
    channel: Any = process.channel
    if channel._send_pktsize < MIN_SENT_PACKET:
        connection.abort()
        raise asyncssh.ProtocolError("The server accepts short packets only")


async def connect_guest(host: str, port: int, budget: CpuBudget, **options: Any) -> asyncssh.SSHClientConnection:
    """Return an open connection, logged in. `options` as for `asyncssh.connect`, whose errors it raises;
    cancellable.
    """
    loop = asyncio.get_running_loop()
    settings = await asyncssh.SSHClientConnectionOptions.construct(host=host, port=port, **ALGORITHMS, **options)
    settings.waiter = loop.create_future()
    _, connection = await loop.create_connection(lambda: LimitedConnection(loop, settings, budget), host, port)
    try:
        await settings.waiter
    except BaseException:
        connection.abort()
        await connection.wait_closed()
        raise
    return connection
