"""One-shot commands in two sandboxes, or tasks in two runtimes, many at once, beside as many plain asyncssh connections
to the same guests: commands a second, in turns.

    STATE=./var .venv/bin/python -m benchmarks.commands [--tasks] [--count 10000] [--turns 4] [--clients 50]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import httpx

from benchmarks.common import Instance, show
from benchmarks.runtime import running_runtime
from benchmarks.sandboxes import Sandbox, running_sandbox
from benchmarks.steps import Progress, run_steps, step

SLOWEST_RATE = 2  # commands a second; below it something hangs
BAR = "of asyncssh's rate; at least 0.6"
Command = Callable[[], Coroutine[Any, Any, str]]


async def rate(commands: Sequence[Command], outcomes: Counter[str], progress: Progress) -> float:
    """Commands a second: each of the `commands` runs one after another, until there were as many as in `progress`."""
    left = iter(range(progress.total))

    async def repeat(command: Command) -> None:
        for _ in left:
            outcomes[await command()] += 1
            progress.done += 1

    begun = time.perf_counter()
    await asyncio.gather(*map(repeat, commands))
    return progress.total / (time.perf_counter() - begun)


async def measure(sandboxes: Sequence[Sandbox], options: argparse.Namespace) -> None:
    ours, theirs = [], []
    answers: Counter[str] = Counter()
    count = options.count // options.turns
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=options.clients, max_keepalive_connections=options.clients)
        client = await stack.enter_async_context(httpx.AsyncClient(limits=limits, timeout=120, trust_env=False))
        users = [sandboxes[number % len(sandboxes)] for number in range(options.clients)]
        connections = [await stack.enter_async_context(await one.ssh()) for one in users]

        async def by_api(one: Sandbox) -> str:
            route, body = ("exec", {"cmd": ["true"]}) if options.tasks else ("terminal", {"command": "true"})
            answer = await client.post(f"{one.url}/{route}", json=body, headers=one.headers)
            return str(answer.status_code)

        async def by_ssh(connection: Any) -> str:
            return str((await connection.run("true")).exit_status)

        kinds = (("asyncssh", theirs, connections, by_ssh, Counter[str]()), ("ours", ours, users, by_api, answers))
        for number in range(options.turns):
            for name, rates, places, command, outcomes in kinds:
                title = f"{count} commands, {name}, {number + 1} of {options.turns}"
                async with step(title, count / SLOWEST_RATE, total=count, unit="commands") as progress:
                    each: list[Command] = [partial(command, place) for place in places]
                    rates.append(await rate(each, outcomes, progress))
    print(f"  answers: {dict(answers)} (none of 500 and above)")
    show("commands", ours, theirs, unit="a second", bar=BAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--tasks", action="store_true", help="of the runtime")
    options = parser.parse_args()
    instance = Instance.load()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    with ExitStack() as stack:
        if options.tasks:
            runtimes = [stack.enter_context(running_runtime(instance)) for _ in range(2)]
            sandboxes = [replace(one.guest, url=one.url, headers=one.headers) for one in runtimes]
        else:
            sandboxes = [stack.enter_context(running_sandbox(instance, 512)) for _ in range(2)]
        run_steps(measure(sandboxes, options))


if __name__ == "__main__":
    main()
