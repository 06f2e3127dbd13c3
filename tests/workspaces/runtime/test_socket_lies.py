"""Sockets and terminals of a runtime whose guest says anything: it takes no memory of the process."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from itertools import count

import pytest

from tests.vmbackend.lying_guest import LyingGuest, Script, run, with_guests
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.frames import Answer, Request, number, text, texts
from vmbackend.guest.session import GuestAddress
from workspaces.data_plane.sockets import machine
from workspaces.data_plane.sockets.machine import MachineTerminals
from workspaces.runtime.sockets import news
from workspaces.runtime.sockets.news import news_of
from workspaces.runtime.sockets.socket import RuntimeSocket
from workspaces.runtime.terminals.services import MAX_SCROLLBACK, read_scrollback

ADDRESS = GuestAddress("machine", "10.0.0.2", 22, "none")


def watching(ids: Iterator[int]) -> Script:
    """A guest whose watches are others each time that it is asked, and have no events."""

    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        for known in count(1):
            kind, about, _ = await guest.hear()
            if kind == Request.LIST:
                guest.answer(Answer.DONE, about, number(0, 4))
            elif kind == Request.KEPT_LIST:
                guest.answer(Answer.DONE, about, *(number(id, 4) for id in [next(ids) for _ in range(8)] if id))
            elif kind == Request.KEPT_SHOW:
                guest.answer(Answer.DONE, about, bytes(21), text("/a"), texts([]))
            elif kind == Request.CHANGES:
                guest.answer(Answer.DONE, about, number(known, 8))

    return script


async def joined(monkeypatch: pytest.MonkeyPatch, ids: Iterator[int]) -> RuntimeSocket:
    monkeypatch.setattr(machine, "open_hold", lambda *_: with_guests(watching(ids)))
    monkeypatch.setattr(MachineTerminals, "_record_use", lambda _: "")
    socket = RuntimeSocket(MachineTerminals(ADDRESS))
    socket.machine.sockets.add(socket)
    await socket.prepare()
    socket.begin()
    return socket


async def left(socket: RuntimeSocket) -> None:
    socket.machine.sockets.discard(socket)
    await socket.leave()
    await socket.machine.close(returns=False)


def test_a_machine_without_sockets_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened_and_left() -> weakref.ref[MachineTerminals]:
        socket = await joined(monkeypatch, iter(lambda: 0, None))
        await asyncio.sleep(0.1)
        await left(socket)
        return weakref.ref(socket.machine)

    async def work() -> None:
        found = await opened_and_left()
        await asyncio.sleep(0.1)
        gc.collect()
        assert found() is None

    run(work())


def test_watchers_that_come_and_go_without_an_end_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "LOOK_SECONDS", 0.0)
    ids = count(1)

    async def work() -> None:
        socket = await joined(monkeypatch, ids)
        sending = asyncio.ensure_future(socket.send_forever(lambda _: asyncio.sleep(0)))
        while next(ids) < 1000:
            await asyncio.sleep(0.01)
        assert len(news_of(socket.machine)._watches) <= news.MAX_WATCHES
        assert len(socket._watchers) <= news.MAX_WATCHES
        sending.cancel()
        await left(socket)

    run(work())


def scrolling(start: int, end: int, step: int) -> Script:
    """A guest with a terminal of any scrollback, whose pieces of output go on by `step`."""

    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        while True:
            kind, about, body = await guest.hear()
            if kind == Request.TERMINAL_SHOW:
                entry = number(1, 4) + number(80, 2) + number(24, 2) + number(start, 8) + number(end, 8) + bytes(6)
                guest.answer(Answer.DONE, about, entry, number(1 << 40, 8), b"\xff" * 4, texts([]))
            elif kind == Request.TERMINAL_READ:
                at = int.from_bytes(body[4:12], "big")
                guest.answer(Answer.DONE, about, number(at + step, 8), bytes(24 * 1024))

    return script


def test_the_scrollback_of_a_guest_that_lies_is_bounded() -> None:
    async def work() -> None:
        client = with_guests(scrolling(0, 1 << 32, 0))
        _, data = await asyncio.wait_for(read_scrollback(client, 1, None), 10)
        assert len(data) == MAX_SCROLLBACK
        await client.close()

    run(work())


def test_output_from_before_what_was_asked_for_costs_the_connection() -> None:
    async def work() -> None:
        client = with_guests(scrolling(1 << 20, 1 << 21, -30_000))
        with pytest.raises(GuestUnreachable):
            await asyncio.wait_for(read_scrollback(client, 1, None), 10)
        await client.close()

    run(work())
