"""What terminals cost in memory: of the process `streams`, and of the guest's programs that serve them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.common import STATE
from benchmarks.sandboxes import Sandbox
from benchmarks.steps import step
from benchmarks.terminal_clients import Socket, opened

STREAMS_BAR, GUEST_BAR, IDLE_BAR = 4.0, 1.0, 64.0  # MiB
STILL_SECONDS = 3.0
SETTLE_SECONDS = 2.0
PRINT = ["sh", "-c", "exec yes this is never read"]
# KiB of all processes of the guest that serve terminals: hold, and a dropbear of each connection.
GUEST_MEMORY = r"""for p in /proc/[0-9]*; do case $(tr '\0' ' ' <$p/cmdline) in
'guest hold '*|dropbear*) cat $p/status;; esac; done 2>/dev/null | awk '/^VmRSS/ { sum += $2 } END { print sum }'"""


def streams_memory() -> float:
    """MiB of the instance's process `streams`."""
    return sum(_resident(folder) for folder in Path("/proc").iterdir() if _is_streams(folder))


def _is_streams(folder: Path) -> bool:
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
        return b"config.serve_asgi" in words and f"PLATFORM_STATE={STATE}".encode() in _environment(folder)
    except OSError:  # no process, or one that has ended
        return False


def _environment(folder: Path) -> list[bytes]:
    return (folder / "environ").read_bytes().split(b"\0")


def _resident(folder: Path) -> float:
    line = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def guest_memory(sandbox: Sandbox) -> float:
    """MiB. By a connection that is there at every measurement, and so is no difference."""
    async with await sandbox.ssh() as connection:
        done = await connection.run(GUEST_MEMORY, check=True)
        return int(str(done.stdout)) / 1024


async def measure_silent_client(sandbox: Sandbox) -> bool:
    """A client that never reads, beside one that looks how far its program came. Returns whether the bars are kept."""
    async with AsyncExitStack() as stack, step("a client that never reads", 180, unit="looks at its program"):
        watching = await stack.enter_async_context(opened(sandbox, keep=False))
        await watching.ask("terminal_closed", action="terminal_close", terminalId=await watching.create(["true"]))
        silent = await stack.enter_async_context(opened(sandbox, keep=False))
        before = streams_memory(), await guest_memory(sandbox)
        id = await silent.create(PRINT)
        silent.stop_reading()
        offset = await _stopped_at(watching, id)
        grown = [now - then for now, then in zip((streams_memory(), await guest_memory(sandbox)), before, strict=True)]
        await watching.ask("terminal_closed", action="terminal_close", terminalId=id)
    print(f"  its program stopped after {offset / (1 << 20):.1f} MiB, most of it in the sockets' buffers")
    bars = f"(less than {STREAMS_BAR:g}), the guest {grown[1]:.2f} MiB (less than {GUEST_BAR:g})"
    print(f"  streams grew {grown[0]:.2f} MiB {bars}", flush=True)
    return grown[0] < STREAMS_BAR and grown[1] < GUEST_BAR


async def _stopped_at(watching: Socket, id: int) -> int:
    """Bytes of its output, once it prints no more."""
    seen = -1
    while True:
        entries = (await watching.ask("terminal_list", action="terminal_list"))["terminals"]
        now = next(int(entry["offset"]) for entry in entries if entry["terminalId"] == id)
        if now == seen and now > 0:
            return now
        seen = now
        await asyncio.sleep(STILL_SECONDS)


async def measure_idle_terminals(sandboxes: Sequence[Sandbox], count: int) -> bool:
    """Shells at their prompts, spread over the sandboxes. Returns whether the bar is kept."""
    async with AsyncExitStack() as stack, step("idle terminals", 600, total=count, unit="terminals") as progress:
        sockets = [await stack.enter_async_context(opened(each, keep=False)) for each in sandboxes]
        for socket in sockets:
            await socket.create([])
        before = streams_memory(), [await guest_memory(each) for each in sandboxes]
        for number in range(count):
            await sockets[number % len(sockets)].create([])
            progress.done += 1
        await asyncio.sleep(SETTLE_SECONDS)
        grown = streams_memory() - before[0]
        guests = [await guest_memory(each) - then for each, then in zip(sandboxes, before[1], strict=True)]
    print(f"  streams grew {grown:.2f} MiB (less than {IDLE_BAR:g}); each guest {max(guests):.2f} MiB at most")
    return grown + sum(guests) < IDLE_BAR
