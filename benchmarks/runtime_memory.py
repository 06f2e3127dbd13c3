"""What the platform keeps of runtimes that nobody follows: running tasks, idle sockets; and what a task takes in the
guest.

    STATE=./var .venv/bin/python -m benchmarks.runtime_memory [--tasks 256] [--sockets 64] [--machines 4]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack

import httpx
from websockets.asyncio.client import connect

from benchmarks.common import Instance, show_must
from benchmarks.runtime import Runtime, running_runtime
from benchmarks.terminal_memory import guest_memory, streams_memory

TASKS_BAR, SOCKET_BAR, GUEST_BAR_KIB = 1.0, 64.0 / 200, 32.0
SETTLE_SECONDS = 5.0
WARM = 16


async def begin_tasks(client: httpx.AsyncClient, runtimes: Sequence[Runtime], count: int) -> None:
    """Begin tasks that run on, and leave each as soon as it has begun."""
    for number in range(count):
        one = runtimes[number % len(runtimes)]
        request = client.stream("POST", f"{one.url}/exec/stream", json={"cmd": ["sleep", "3000"]}, headers=one.headers)
        async with request as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    break


async def end_tasks(client: httpx.AsyncClient, runtimes: Sequence[Runtime]) -> None:
    for one in runtimes:
        (await client.delete(f"{one.url}/exec", headers=one.headers)).raise_for_status()


async def guests_memory(runtimes: Sequence[Runtime]) -> float:
    """MiB of all holds."""
    return sum([await guest_memory(one.guest) for one in runtimes])


async def measure_tasks(runtimes: Sequence[Runtime], count: int) -> None:
    async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
        # What the first ones make is kept: imports, connections, buffers.
        await begin_tasks(client, runtimes, WARM * len(runtimes))
        await end_tasks(client, runtimes)
        time.sleep(SETTLE_SECONDS)
        before, inside = streams_memory(), await guests_memory(runtimes)
        await begin_tasks(client, runtimes, count)
        time.sleep(SETTLE_SECONDS)
        print(f"{count} running tasks on {len(runtimes)} machines, in MiB of streams:")
        show_must(streams_memory() - before, TASKS_BAR, unit=" MiB")
        print("a task at rest, in the guest's hold:")
        show_must((await guests_memory(runtimes) - inside) * 1024 / count, GUEST_BAR_KIB, unit=" KiB")
        await end_tasks(client, runtimes)


async def measure_sockets(runtimes: Sequence[Runtime], count: int) -> None:
    before = streams_memory()
    async with AsyncExitStack() as stack:
        for number in range(count):
            one = runtimes[number % len(runtimes)]
            url = f"{one.url.replace('http://', 'ws://', 1)}/ws?token={one.headers['Authorization'].split()[1]}"
            socket = await stack.enter_async_context(connect(url, proxy=None, compression=None))
            await (await socket.ping())
        time.sleep(SETTLE_SECONDS)
        print(f"{count} idle sockets on {len(runtimes)} machines:")
        show_must(streams_memory() - before, count * SOCKET_BAR, unit=" MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=256)
    parser.add_argument("--sockets", type=int, default=64, help="a machine has 16 at most")
    parser.add_argument("--machines", type=int, default=4)
    options = parser.parse_args()
    instance = Instance.load()
    with ExitStack() as stack:
        runtimes = [stack.enter_context(running_runtime(instance)) for _ in range(options.machines)]
        asyncio.run(measure_tasks(runtimes, options.tasks))
        asyncio.run(measure_sockets(runtimes, options.sockets))


if __name__ == "__main__":
    main()
