"""The frequency of the host's time stamp counter (TSC), which is also that of an emulated machine's.

A guest's kernel measures its counter against emulated timers while it boots. If the host does not run it in just these
milliseconds the result is wrong by any factor, and with it the rate of the guest's clock until it is powered off. The
host has all the time to measure it well.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable
from pathlib import Path

_CLOCKSOURCES = Path("/sys/devices/system/clocksource/clocksource0/available_clocksource")
_READ_TSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
_SECONDS = 0.1  # at least between two readings: with one microsecond of error, 10 ppm
_TRIES = 20
_PLAUSIBLE_KHZ = range(100_000, 20_000_000)

Reading = tuple[int, int]  # ns on the monotonic clock, counter


class HostTsc:
    """A measurement of the frequency that runs from its creation on: the later it is asked for, the more exact it is.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._read = _reader() if _is_stable() else None
        self._begin = _reading(self._read) if self._read else (0, 0)

    def khz(self) -> int | None:
        """Return the frequency in kHz; None if it is unknown. Waits in the first 0.1 s."""
        if self._read is None:
            return None
        began, first = self._begin
        time.sleep(max(0.0, _SECONDS - (time.monotonic_ns() - began) / 1e9))
        ended, last = _reading(self._read)
        found = round((last - first) * 1_000_000 / (ended - began))
        return found if found in _PLAUSIBLE_KHZ else None

    def kernel_args(self) -> str:
        """Return the end of an emulated machine's kernel arguments. Waits in the first 0.1 s."""
        khz = self.khz()
        return "" if khz is None else f" tsc_early_khz={khz}"


def _is_stable() -> bool:
    """Return whether the host's kernel offers the counter as a clock: it is constant, and the same on all
    processors.
    """
    try:
        return platform.machine() == "x86_64" and "tsc" in _CLOCKSOURCES.read_text().split()
    except OSError:
        return False


def _reader() -> Callable[[], int] | None:
    """Return a function that reads the counter; None if this process may not have memory for code."""
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    code.write(_READ_TSC)
    held = ctypes.c_char.from_buffer(code)  # keeps the memory mapped
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(held))
    return lambda: (held, read())[1]


def _reading(read: Callable[[], int]) -> Reading:
    """Return clock and counter at the same moment: the reading that took the shortest time of some."""
    found = []
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        counter = read()
        after = time.monotonic_ns()
        found.append((after - before, (before + after) // 2, counter))
    _, moment, counter = min(found)
    return moment, counter
