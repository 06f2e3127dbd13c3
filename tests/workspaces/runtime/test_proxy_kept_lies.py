"""Kept connections of the proxy whose guest, or whose link to it, is not what it was."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.vmbackend.lying_guest import LyingGuest, run, with_guests
from tests.workspaces.runtime.proxied import ok
from vmbackend.guest.hold import client as hold_client
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.connections import WINDOW
from vmbackend.guest.hold.frames import Answer, Request, number
from vmbackend.guest.session import GuestSession
from workspaces.runtime.proxy import exchange as proxied
from workspaces.runtime.proxy.errors import ProxyBroken, ProxyRefused
from workspaces.runtime.proxy.exchange import ProxiedRequest, exchange
from workspaces.runtime.proxy.targets import LoopbackPort

HEADERS = [(b"Transfer-Encoding", b"chunked")]


async def answers(guest: LyingGuest, at_most: int = 100, granted: int = WINDOW, answer: bytes = ok()) -> None:
    """Accept connections, and answer as many requests."""
    await guest.welcome()
    while at_most:
        kind, about, body = await guest.hear()
        if kind == Request.CONNECT:
            guest.answer(Answer.DONE, about, number(granted, 8))
        elif kind == Request.LIST:
            guest.answer(Answer.DONE, about, number(0, 4))
        elif kind == Request.CONNECT_SEND and b" HTTP/1.1\r\n" in body:
            at_most -= 1
            guest.answer(Answer.CONNECT_DATA, int.from_bytes(body[:4], "big"), answer)


def framed(kind: int, about: int, body: bytes) -> bytes:
    return struct.pack(">IBI", len(body) + 5, kind, about) + body


async def asked(client: HoldClient, *chunks: bytes, method: bytes = b"GET") -> list[Any]:
    """The parts of the answer to a request with these chunks, if any."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def open_held() -> HoldClient:
        return client

    session = cast("GuestSession", SimpleNamespace(open_held=open_held))
    target = LoopbackPort("127.0.0.1", 80)
    request = ProxiedRequest(method, b"/", HEADERS if chunks else [], target)
    return [part async for part in exchange(session, request, body())]


def test_a_connection_of_a_link_that_breaks_is_not_the_end_of_a_request() -> None:
    async def once(guest: LyingGuest) -> None:
        await answers(guest, at_most=1)
        while (await guest.hear())[0] != Request.CONNECT_SEND:
            pass
        guest.say(b"")

    async def work() -> None:
        client = with_guests(once, answers)
        assert (await asked(client))[1:] == [b"hello"]
        assert (await asked(client))[1:] == [b"hello"]
        await client.close()

    run(work())


def test_a_connection_of_a_link_that_is_silent_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_client, "QUIET_SECONDS", 0.2)

    async def once(guest: LyingGuest) -> None:
        await answers(guest, at_most=1)
        while (await guest.hear())[0] != Request.LIST:
            pass
        guest.say(b"")

    async def work() -> None:
        client = with_guests(once, answers)
        assert (await asked(client))[1:] == [b"hello"]
        await asyncio.sleep(0.4)
        assert (await asked(client))[1:] == [b"hello"]
        await client.close()

    run(work())


def test_a_connection_on_which_a_request_was_not_sent_whole_is_not_used_again() -> None:
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1:80\r\nTransfer-Encoding: chunked\r\n\r\n"
    granted = len(head) + len(b"2\r\nhi\r\n")

    async def work() -> None:
        client = with_guests(lambda guest: answers(guest, granted=granted))
        assert (await asked(client, b"hi", method=b"POST"))[1:] == [b"hello"]
        assert not client.connections._kept
        assert not client.connections._open
        await client.close()

    run(work())


def test_heads_that_end_at_once_leave_turns_to_others() -> None:
    """The ends of many heads come in one block: each of them takes a while to be parsed."""
    lines = b"HTTP/1.1 200 OK\r\n" + b"".join(b"a%d:\r\n" % number for number in range(6000))

    async def heads(guest: LyingGuest) -> None:
        await guest.welcome()
        ids: list[int] = []
        while len(ids) < 40:
            kind, about, body = await guest.hear()
            if kind == Request.CONNECT:
                guest.answer(Answer.DONE, about, number(WINDOW, 8))
            elif kind == Request.CONNECT_SEND:
                ids.append(int.from_bytes(body[:4], "big"))
                for at in range(0, len(lines), 24_000):
                    guest.answer(Answer.CONNECT_DATA, ids[-1], lines[at : at + 24_000])
        await asyncio.sleep(2)
        guest.say(b"".join(framed(Answer.CONNECT_DATA, id, b"\r\n") for id in ids))

    async def work() -> None:
        client, turn, turns = with_guests(heads), 0, set[int]()

        async def ask() -> None:
            with pytest.raises(ProxyRefused):
                await asked(client)
            turns.add(turn)

        asking = asyncio.gather(*(ask() for _ in range(40)))
        while not asking.done():
            await asyncio.sleep(0)
            turn += 1
        await asking
        assert len(turns) > 20
        await client.close()

    run(work())


def test_an_answer_beside_a_body_that_nobody_takes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxied, "HEAD_SECONDS", 1.0)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"

    async def work() -> None:
        client = with_guests(lambda guest: answers(guest, granted=200, answer=answer))
        with pytest.raises(ProxyBroken):
            await asyncio.wait_for(asked(client, bytes(1000), method=b"POST"), 10)
        assert not client.connections._open
        await client.close()

    run(work())
