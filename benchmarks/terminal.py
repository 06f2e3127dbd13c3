"""A terminal of a sandbox by WebSocket beside a PTY by plain SSH to the same guest, in turns: from a key to its
echo, and the rate of `cat`; then what terminals cost in memory.

STATE=./var .venv/bin/python -m benchmarks.terminal [--parts echo,rate,printing,silent,idle] [--keys 200] [--size 64]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack

from benchmarks.common import Instance, percentile, show
from benchmarks.sandboxes import Sandbox, command_run, running_sandbox
from benchmarks.steps import Progress, run_steps, step
from benchmarks.terminal_clients import OurTerminal, PlainTerminal, Terminal, opened
from benchmarks.terminal_memory import measure_idle_terminals, measure_silent_client

ALONE_BAR, PRINTING_BAR, RATE_BAR = 2.0, 3.0, 0.6
PARTS = ("echo", "rate", "printing", "silent", "idle")
FILE = "/bench.txt"
ECHO = ["sh", "-c", "stty raw -echo; echo ready; exec cat"]
# 2.4 KB ten times a second, in 40 lines. One process each: starting programs would be all that the guest does.
PRINT = ["perl", "-e", '$| = 1; while (1) { print(("x" x 59 . "\\n") x 40); select(undef, undef, undef, 0.1) }']
STEP_SECONDS = 300.0
MACHINES = 4  # of the idle terminals: one has 64 at most


async def echoes(terminal: Terminal, keys: int, progress: Progress) -> list[float]:
    """Milliseconds from each key to its echo."""
    await terminal.connect()
    await terminal.start(ECHO)
    seen = b""
    while b"ready" not in seen:
        seen += await terminal.read()
    found = []
    for _ in range(keys):
        begun = time.perf_counter()
        terminal.write(b"x")
        while b"x" not in await terminal.read():
            pass
        found.append((time.perf_counter() - begun) * 1000)
        progress.done += 1
        await asyncio.sleep(0.01)
    await terminal.end()
    return found


async def rate(terminal: Terminal, size: int, progress: Progress) -> float:
    """MiB a second of `cat`, without the time of a connection."""
    await terminal.connect()
    begun, count = time.perf_counter(), 0
    await terminal.start(["cat", FILE])
    while count < size:
        count += len(await terminal.read())
        progress.done = count >> 20
    seconds = time.perf_counter() - begun
    await terminal.end()
    return count / seconds / (1 << 20)


Measured = list[list[float]]  # ours and theirs


async def compare_echoes(pair: tuple[Terminal, Terminal], options: argparse.Namespace, title: str, bar: float) -> bool:
    found: Measured = [[], []]
    async with step(title, STEP_SECONDS, total=2 * options.rounds * options.keys, unit="keys") as progress:
        for _ in range(options.rounds):
            for place in (1, 0):
                found[place] += await echoes(pair[place], options.keys, progress)
    show("key to echo", found[0], found[1], unit="ms", bar="medians")
    p99 = [percentile(values, 0.99) for values in found]
    ratio = p99[0] / p99[1]
    print(f"  p99 {p99[0]:.2f} ms, plain {p99[1]:.2f} ms: {ratio:.2f} times a plain PTY (at most {bar:g})")
    return ratio <= bar


async def compare_rates(pair: tuple[Terminal, Terminal], options: argparse.Namespace) -> bool:
    found: Measured = [[], []]
    for number in range(options.rounds):
        for place, name in ((1, "plain"), (0, "ours")):
            title = f"cat of {options.size} MiB, {name}, {number + 1} of {options.rounds}"
            async with step(title, STEP_SECONDS, total=options.size, unit="MiB") as progress:
                found[place].append(await rate(pair[place], options.size << 20, progress))
    ratio = show("rate", *found, unit="MiB/s", bar=f"of a plain PTY's; at least {RATE_BAR:g}")
    return ratio >= RATE_BAR


async def measure(sandbox: Sandbox, options: argparse.Namespace) -> list[str]:
    """Returns the parts whose bars were missed."""
    async with AsyncExitStack() as stack:
        async with step("sockets", 30):
            socket, printing = [await stack.enter_async_context(opened(sandbox, keep=keep)) for keep in (True, False)]
        pair = OurTerminal(socket), PlainTerminal(sandbox)

        async def with_others() -> bool:
            title = f"{options.printing} terminals that print"
            async with step(title, STEP_SECONDS, total=options.printing, unit="terminals") as progress:
                for _ in range(options.printing):
                    await printing.create(PRINT)
                    progress.done += 1
            return await compare_echoes(pair, options, f"echo beside {title}", PRINTING_BAR)

        parts: dict[str, Callable[[], Awaitable[bool]]] = {
            "echo": lambda: compare_echoes(pair, options, "echo", ALONE_BAR),
            "rate": lambda: compare_rates(pair, options),
            "silent": lambda: measure_silent_client(sandbox),
            "printing": with_others,
        }
        return [name for name, part in parts.items() if name in options.parts and not await part()]


def with_one_machine(instance: Instance, options: argparse.Namespace) -> list[str]:
    with running_sandbox(instance, 1024, disk_size_mb=1024) as sandbox:
        # Lines without an end of line are as long as a terminal is wide; a PTY would write two bytes for each end.
        command_run(sandbox.url, sandbox.headers, f"head -c {options.size << 20} /dev/zero | tr '\\0' x >{FILE}")
        return run_steps(measure(sandbox, options))


def with_idle_terminals(instance: Instance, count: int) -> list[str]:
    with ExitStack() as stack:
        sandboxes = [stack.enter_context(running_sandbox(instance, 256)) for _ in range(MACHINES)]
        return [] if run_steps(measure_idle_terminals(sandboxes, count)) else ["idle"]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--size", type=int, default=64, help="MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--printing", type=int, default=50)
    parser.add_argument("--idle", type=int, default=200)
    return parser.parse_args()


def main() -> None:
    instance, options = Instance.load(), parse_options()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    missed: list[str] = []
    if set(options.parts) - {"idle"}:
        missed += with_one_machine(instance, options)
    if "idle" in options.parts:
        missed += with_idle_terminals(instance, options.idle)
    print(f"load {os.getloadavg()[0]:.1f}")
    if missed:
        raise SystemExit(f"bars that were missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
