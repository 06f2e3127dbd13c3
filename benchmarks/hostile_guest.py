"""What a hostile guest costs the guests beside it: requests to a neighbour while one guest sends what it should not.

Each lie is one of `tests/vmbackend/hostile_server.py`; both guests are servers on this machine, without a VM. Printed
are the neighbour's `stat` (p50, p90) beside those without a hostile guest in the same run, and the longest time for
which the shared event loop ran one step.

    .venv/bin/python -m benchmarks.hostile_guest [--seconds 5] [LIE]...
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh

from vmbackend.errors import BackendError
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress
from vmbackend.guest.ssh import SSHGuestSession

SERVER = Path(__file__).parents[1] / "tests" / "vmbackend" / "hostile_server.py"
LISTINGS = ["1,000 links"]
FLOODS = ["output in single bytes", "ignored packets"]
CALLS = 100


@contextmanager
def guest(folder: Path, lie: str) -> Iterator[GuestAddress]:
    folder.mkdir()
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(folder / "host_key"))
    process = subprocess.Popen([sys.executable, str(SERVER), str(folder), lie], stderr=subprocess.DEVNULL)
    try:
        while not (folder / "port").exists():
            time.sleep(0.02)
        port = int((folder / "port").read_text())
        yield GuestAddress(lie, "127.0.0.1", port, key.export_public_key().decode().strip())
    finally:
        process.kill()
        process.wait()


class Steps:
    """The longest step of a loop, in CPU seconds of its thread: other processes do not count."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest = 0.0
        self._loop = loop
        self._run: Any = asyncio.events.Handle._run

    def __enter__(self) -> Steps:
        def timed(handle: Any) -> None:
            if handle._loop is not self._loop:
                self._run(handle)
                return
            begun = time.thread_time()
            self._run(handle)
            self.longest = max(self.longest, time.thread_time() - begun)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.events.Handle._run = self._run  # type: ignore[method-assign]


async def neighbour_times(pool: GuestPool, address: GuestAddress) -> list[float]:
    found = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        await pool.acall(address, lambda session: session.stat("/x"), 60)
        found.append(time.perf_counter() - begun)
    return sorted(found)


async def lie_forever(pool: GuestPool, address: GuestAddress, lie: str) -> None:
    while True:
        with suppress(BackendError):
            if lie in FLOODS:
                await pool.acall(address, lambda session: session.execute(["flood"], timeout=300.0), 400)
            else:
                await pool.acall(address, lambda session: session.list_directory("/"), 60)


async def measure(pool: GuestPool, liar: GuestAddress, neighbour: GuestAddress, lie: str, seconds: float) -> None:
    quiet = await neighbour_times(pool, neighbour)
    with Steps(pool._start().loop) as steps:
        flood = asyncio.ensure_future(lie_forever(pool, liar, lie))
        await asyncio.sleep(seconds)
        busy = await neighbour_times(pool, neighbour)
        flood.cancel()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{lie:<32} neighbour p50 {statistics.median(busy) * 1e3:6.1f} ms, p90 {busy[CALLS * 9 // 10] * 1e3:6.1f} ms "
        f"(alone {statistics.median(quiet) * 1e3:.1f} and {quiet[CALLS * 9 // 10] * 1e3:.1f}); "
        f"longest step {steps.longest * 1e3:6.1f} ms of CPU; process {memory} MiB at most"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="from the first lie to the measurement")
    parser.add_argument("lies", nargs="*", default=[*LISTINGS, *FLOODS])
    options = parser.parse_args()
    for lie in options.lies:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(folder / "key"))
            pool = GuestPool(lambda address, key=folder / "key": SSHGuestSession(address, key))  # type: ignore[misc]
            try:
                with guest(folder / "liar", lie) as liar, guest(folder / "neighbour", "") as neighbour:
                    asyncio.run(measure(pool, liar, neighbour, lie, options.seconds))
            finally:
                pool.close()


if __name__ == "__main__":
    main()
