"""Two clients on one terminal, as two streams processes are: one that is stuck holds the other for seconds only."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from tests.vmbackend.hold_factory import LocalHold, read_rest, read_until
from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.guest.hold.client import HoldSettings
from vmbackend.guest.hold.terminal import HeldTerminal

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")

MIB = 1 << 20
READY = b"ready\n"
# As a streams process has it.
KEEPING = HoldSettings(timeout=60.0, retained=192 * 1024)


async def read_across_gaps(terminal: HeldTerminal) -> tuple[bytes, int]:
    """The output to the program's end, and how many bytes are missing."""
    seen, at, missing = bytearray(), terminal.offset, 0
    while True:
        offset, data = await terminal.read()
        missing += offset - at
        if not data:
            return bytes(seen), missing
        seen += data
        at = offset + len(data)


@pytest.mark.parametrize("cut", [False, True], ids=["attached", "whose connection broke"])
def test_a_stuck_client_does_not_hold_another_and_learns_of_its_gap(
    hold_program: Path, tmp_path: Path, cut: bool
) -> None:
    data = os.urandom(8 * MIB)
    (tmp_path / "data").write_bytes(data)

    async def work(hold: LocalHold) -> None:
        stuck, quick = hold.client(KEEPING), hold.client(KEEPING)
        script = f"stty raw -echo; echo ready; head -c 1 > /dev/null; cat {tmp_path}/data"
        held = await stuck.create_terminal(["sh", "-c", script])
        taking = await quick.attach_terminal(held.id, 0)
        assert await read_until(taking, READY) == READY
        reading = asyncio.ensure_future(read_rest(taking))
        if cut:
            os.kill(hold.attached[0].process.pid, 9)
        await taking.write(b"x")
        assert hashlib.sha256(await reading).digest() == hashlib.sha256(data).digest()
        late, missing = await read_across_gaps(held)
        assert missing > 0
        assert missing + len(late) == len(READY + data)
        assert data.endswith(late[-200 * 1024 :])
        assert held.exit is not None
        await stuck.close()
        await quick.close()

    hold = LocalHold(hold_program, tmp_path / "hold", linger=600.0)
    try:
        asyncio.run(asyncio.wait_for(work(hold), 120))
    finally:
        hold.close()


def test_a_client_alone_is_waited_for(hold: LocalHold, tmp_path: Path) -> None:
    """Longer than another one would be held."""
    data = os.urandom(MIB)
    (tmp_path / "data").write_bytes(data)

    async def work() -> None:
        client = hold.client(KEEPING)
        terminal = await client.create_terminal(["sh", "-c", f"stty raw; cat {tmp_path}/data"])
        await asyncio.sleep(7)
        assert await read_rest(terminal) == data
        await client.close()

    asyncio.run(asyncio.wait_for(work(), 120))
