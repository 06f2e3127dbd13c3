"""The signal by which an image wants its program to be stopped, as container runtimes read it."""

from __future__ import annotations

import signal

RTMIN, RTMAX = 34, 64  # of Linux programs, whose C library keeps the first two
REALTIME_UP = 15  # RTMIN to RTMIN+15, and RTMAX-14 to RTMAX
_OTHER_NAMES = {"CLD": signal.SIGCHLD, "IOT": signal.SIGABRT, "POLL": signal.SIGIO}
_NAMES = {member.name.removeprefix("SIG"): int(member) for member in signal.Signals if "RT" not in member.name}
_NUMBERS = {
    **_NAMES,
    **{name: int(number) for name, number in _OTHER_NAMES.items()},
    "RTMIN": RTMIN,
    "RTMAX": RTMAX,
    **{f"RTMIN+{n}": RTMIN + n for n in range(1, REALTIME_UP + 1)},
    **{f"RTMAX-{n}": RTMAX - n for n in range(1, REALTIME_UP)},
}


def signal_number(name: str) -> int | None:
    """Return the number of `QUIT`, `SIGQUIT`, `RTMIN+3` or `3`, in any case; None if there is no such signal."""
    name = name.strip()
    if name.isascii() and name.isdecimal():
        number = int(name.lstrip("0")[:4] or "0")
        return number if 1 <= number <= RTMAX else None
    return _NUMBERS.get(name.upper().removeprefix("SIG"))
