"""WebSockets to servers on a machine's loopback, by the runtime."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.free_ports import free_port
from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.proxied import answering, run, server, until
from tests.workspaces.runtime.proxied_sockets import Socket, websockets

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


def test_messages_pass_both_ways_with_the_subprotocol(holder: Holder, guests: Guests) -> None:
    asked: list[Any] = []

    async def keep(connection: ServerConnection) -> None:
        asked.append(connection.request)
        await echo(connection)

    async def work() -> None:
        async with websockets(keep, subprotocols=["two"]) as port:
            socket = Socket(
                f"/proxy/{port}/a?x=1&token={holder.token}", ("Sec-WebSocket-Key", "x"), ("X-Mine", "1"),
                ("Authorization", "Basic mine"), subprotocols=("one", "two"),
            )  # fmt: skip
            assert (await socket.event("accept"))["subprotocol"] == "two"
            for message in ({"text": "h\u00e9llo"}, {"bytes": b"\0\xff"}, {"text": "x" * 1_000_000}, {"bytes": b""}):
                socket.say(**message)
                assert await socket.event("send") == {"type": "websocket.send", **message}
            assert asked[0].path == "/a?x=1"
            assert asked[0].headers["X-Mine"] == "1"
            assert asked[0].headers["Authorization"] == "Basic mine"
            assert holder.token not in str(asked[0])
            socket.leave(1000)
            await socket.running

    run(work())


def test_close_codes_pass(holder: Holder, guests: Guests) -> None:
    seen: list[ConnectionClosed] = []

    async def closes(connection: ServerConnection) -> None:
        if await connection.recv() == "close":
            await connection.close(4000, "enough")
            return
        try:
            await connection.recv()
        except ConnectionClosed as exc:
            seen.append(exc)

    async def work() -> None:
        async with websockets(closes) as port:
            token = ("Authorization", f"Bearer {holder.token}")
            socket = Socket(f"/proxy/{port}/", token)
            await socket.event("accept")
            socket.say(text="close")
            found = await socket.event("close")
            assert (found["code"], found["reason"]) == (4000, "enough")
            await socket.running
            socket = Socket(f"/proxy/{port}/", token)
            await socket.event("accept")
            socket.say(text="wait")
            socket.leave(4001, "bye")
            await asyncio.wait_for(socket.running, 10)
            await until(lambda: bool(seen))
            assert seen[0].rcvd is not None
            assert (seen[0].rcvd.code, seen[0].rcvd.reason) == (4001, "bye")

    run(work())


def test_a_servers_refusal_is_passed(holder: Holder, guests: Guests) -> None:
    def refuse(connection: ServerConnection, request: Any) -> Response:
        return connection.respond(418, "no tea\n")

    async def work() -> None:
        async with websockets(echo, process_request=refuse) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            begun = await socket.event("http.response.start")
            assert begun["status"] == 418
            assert (b"content-security-policy" in dict(begun["headers"])) is True
            assert (await socket.event("http.response.body"))["body"] == b"no tea\n"
            await socket.running

    run(work())


def test_refusals_of_the_platform(holder: Holder, guests: Guests) -> None:
    async def status(path: str) -> int:
        socket = Socket(path)
        begun = await socket.event("http.response.start")
        await socket.running
        return int(begun["status"])

    async def work() -> None:
        token = f"?token={holder.token}"
        assert await status("/proxy/80/?token=wrong") == 401
        assert await status(f"/proxy/{free_port()}/{token}") == 502
        assert await status(f"/proxy/x/{token}") == 400
        async with server(answering(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")) as port:
            assert await status(f"/proxy/{port}/{token}") == 502
        async with server(answering(b"")) as port:
            assert await status(f"/proxy/{port}/{token}") == 502

    run(work())


def test_a_message_that_is_too_large_ends_its_socket(holder: Holder, guests: Guests) -> None:
    async def large(connection: ServerConnection) -> None:
        await connection.send(b"x" * (3 << 20))

    async def work() -> None:
        async with websockets(large) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            await socket.event("accept")
            assert (await socket.event("close"))["code"] == 1009
            await socket.running

    run(work())


def test_a_server_that_breaks_off_and_a_token_that_ends(
    api: Caller, holder: Holder, guests: Guests, vmhost: FakeHost
) -> None:
    async def breaks(connection: ServerConnection) -> None:
        if await connection.recv() == "break":
            connection.transport.abort()
        else:
            await connection.recv()

    async def work() -> None:
        async with websockets(breaks) as port:
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            await socket.event("accept")
            socket.say(text="break")
            assert (await socket.event("close"))["code"] == 1011
            await socket.running
            socket = Socket(f"/proxy/{port}/?token={holder.token}")
            await socket.event("accept")
            socket.say(text="wait")
            await asyncio.to_thread(api.post, f"/workspace/{holder.id}/runtime-api-access/token")
            assert (await socket.event("close"))["code"] == 4401
            await asyncio.wait_for(socket.running, 10)

    run(work())
