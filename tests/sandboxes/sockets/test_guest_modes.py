"""The guest and the platform follow modes alike, whatever a program prints and wherever the guest's buffer begins."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.vmbackend.hold_factory import QUIET, LocalHold
from vmbackend.guest.hold import HeldTerminal, HoldClient
from workspaces.data_plane.sockets.modes import TerminalModes

BUFFER = 4096
PIECES = [
    b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?47h", b"\x1b[?1000;1002;1006h", b"\x1b[?1002l", b"\x1b[?7l", b"\x1b[?7h",
    b"\x1b[?25l", b"\x1b[?25h", b"\x1b[?2004h", b"\x1b[?2004l", b"\x1b[?1h", b"\x1b[?12;25;99999999h", b"\x1b[4h",
    b"\x1b[4l", b"\x1b[20h", b"\x1b=", b"\x1b>", b"\x1b(0", b"\x1b(B", b"\x1b[2;20r", b"\x1b[r", b"\x1b[4 q",
    b"\x1b[ q", b"\x1b[!p", b"\x1bc", b"\x1b]0;title\x07", b"\x1b]0;\x1b[?1h title\x1b\\", b"\x1bP$q\x1b\\",
    b"\x1b[31m",
    b"\x1b[;;h", b"\x1b[?;h", b"\x1b[>1h", b"\x1b[?1$p", b"\x1b[?5", b"\x1b[", b"\x1b", b"text", b" " * 40, b"\xc3\xa9",
]  # fmt: skip


def output(seed: int) -> bytes:
    chance = random.Random(seed)
    return b"".join(chance.choice(PIECES) for _ in range(4000))


async def modes_after(hold: LocalHold, file: Path) -> tuple[int, bytes, bytes]:
    """What the guest says of the modes, and the output that it still has."""
    client = HoldClient(hold.open_transport, QUIET)
    try:
        script = f"stty raw -echo; cat {file}; sleep 1000"
        terminal = await client.create_terminal(["sh", "-c", script])
        seen = await read_to(terminal, file.stat().st_size)
        return (*await terminal.modes(), seen)
    finally:
        await client.close()


async def read_to(terminal: HeldTerminal, size: int) -> bytes:
    seen = b""
    while len(seen) < size:
        _, data = await terminal.read()
        seen += data
    return seen


def test_the_guest_says_the_modes_that_the_platform_would_have_followed(hold_program: Path, tmp_path: Path) -> None:
    hold = LocalHold(hold_program, tmp_path / "hold", buffer_size=BUFFER)
    try:
        for seed in range(10):
            file = tmp_path / str(seed)
            file.write_bytes(output(seed))
            offset, text, seen = asyncio.run(modes_after(hold, file))
            assert seen == file.read_bytes()
            assert offset == len(seen) - BUFFER
            expected, found = TerminalModes(), TerminalModes()
            expected.feed(seen[:offset])
            found.feed(text)
            assert found.restore() == expected.restore(), seed
            # The same sequences are incomplete there.
            expected.feed(seen[offset:])
            found.feed(seen[offset:])
            assert found.restore() == expected.restore(), seed
    finally:
        hold.close()
