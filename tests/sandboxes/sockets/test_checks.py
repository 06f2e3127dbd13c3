"""When a process looks whether the sandbox of its open sockets still runs."""

from __future__ import annotations

import asyncio

import pytest

from vmbackend.guest.session import GuestAddress
from workspaces.data_plane.sockets import machine
from workspaces.data_plane.sockets.machine import MachineTerminals


def test_a_look_that_is_wanted_right_after_another_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, this process would not look again within the test."""
    monkeypatch.setattr(machine, "USE_SECONDS", 3600.0)
    monkeypatch.setattr(machine, "CHECK_SECONDS", 0.05)

    async def looked_twice() -> None:
        made = MachineTerminals(GuestAddress("ws_1", "192.0.2.1", 22, ""))
        loop, looks, enough = asyncio.get_running_loop(), [0], asyncio.Event()

        def look() -> str:
            looks[0] += 1
            loop.call_soon_threadsafe(made.check_soon if looks[0] == 1 else enough.set)
            return ""

        monkeypatch.setattr(made, "_record_use", look)
        try:
            async with asyncio.timeout(20):
                await enough.wait()
        finally:
            await made.close(returns=False)

    asyncio.run(looked_twice())
