"""Servers in a machine that answer with anything, clients that do not read, and large bodies."""

from __future__ import annotations

import asyncio
import json
import resource
import time

import pytest

from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.proxied import Call, answering, called, ok, run, server, until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]
MIB = 1 << 20
BLOCK = bytes(range(256)) * 256


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x16\x03\x01 no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX One: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-One: a\0b\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbytes",
        b"HTTP/1.1 999 Odd\r\n\r\n",
        b"HTTP/1.1 600 Odd\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\n" + b"X-One: 1\r\n" * 20_000 + b"\r\n",
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused(holder: Holder, guests: Guests, answer: bytes) -> None:
    async def work() -> None:
        async with server(answering(answer)) as port:
            call = await called(holder, f"/proxy/{port}/")
            assert (call.status, json.loads(call.body)["success"]) == (502, False)
            assert b"proxy_refused" in call.body
        async with server(answering(ok())) as port:
            assert (await called(holder, f"/proxy/{port}/")).body == b"hello"

    run(work())


def test_information_before_the_answer_is_not_the_answer(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        async with server(answering(hints * 3 + ok())) as port:
            call = await called(holder, f"/proxy/{port}/")
            assert (call.status, call.body, call.header("Link")) == (200, b"hello", [])

    run(work())


def test_a_head_without_an_end_is_read_to_its_limit(holder: Holder, guests: Guests) -> None:
    sent = 0

    async def endless(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nX-One: ")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async def work() -> None:
        async with server(endless) as port:
            assert (await called(holder, f"/proxy/{port}/")).status == 502
        assert sent < 32 * MIB

    run(work())


def test_a_status_without_a_body_has_no_length(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        async with server(answering(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")) as port:
            call = await called(holder, f"/proxy/{port}/")
            assert (call.status, call.body, call.header("Content-Length")) == (204, b"", [])
        async with server(answering(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")) as port:
            assert (await called(holder, f"/proxy/{port}/")).status == 304

    run(work())


def test_an_answer_before_the_body_is_complete_is_passed(holder: Holder, guests: Guests) -> None:
    async def refuse(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")

    async def work() -> None:
        async with server(refuse) as port:
            call = await called(
                holder, f"/proxy/{port}/", ("Content-Length", str(8 * MIB)), method="PUT", pieces=[BLOCK] * 128
            )
            assert (call.status, call.body, call.is_complete) == (413, b"no", True)

    run(work())


def test_a_hundred_megabytes_each_way_take_no_memory(holder: Holder, guests: Guests) -> None:
    size = 100 * MIB

    async def take_and_give(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = size
        while left:
            left -= len(await reader.readexactly(min(left, 65536)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(BLOCK)):
            writer.write(BLOCK)
            await writer.drain()

    async def work() -> None:
        async with server(take_and_give) as port, server(answering(ok())) as small:
            assert (await called(holder, f"/proxy/{small}/", method="POST")).status == 200
            before = peak()
            pieces = (BLOCK for _ in range(size // len(BLOCK)))
            call = Call(holder, f"/proxy/{port}/", ("Content-Length", str(size)), method="POST", pieces=pieces)
            call.keeps = False
            await call.run()
            assert (call.status, call.size, call.is_complete) == (200, size, True)
            assert peak() - before < 24 * MIB

    run(work(), 300)


def test_a_client_that_does_not_read_stops_the_server_and_nobody_else(holder: Holder, guests: Guests) -> None:
    sent = 0

    async def talk(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(BLOCK)
            await writer.drain()
            sent += len(BLOCK)

    async def work() -> None:
        async with server(talk) as port, server(answering(ok())) as other:
            call = Call(holder, f"/proxy/{port}/")
            call.keeps = False
            running = asyncio.ensure_future(call.run())
            await until(lambda: call.status == 200)
            call.takes.clear()
            await asyncio.sleep(1)
            then = sent
            assert (await called(holder, f"/proxy/{other}/")).body == b"hello"
            await asyncio.sleep(0.5)
            assert sent - then < 16 * MIB
            assert sent < 256 * MIB
            call.leave()
            call.takes.set()
            await running

    run(work())


def test_the_smallest_chunks_leave_time_for_others(holder: Holder, guests: Guests) -> None:
    async def tiny(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\na\r\n" * 5000)
            await writer.drain()

    async def work() -> None:
        async with server(tiny) as port, server(answering(ok())) as other:
            call = Call(holder, f"/proxy/{port}/")
            call.keeps = False
            running = asyncio.ensure_future(call.run())
            await until(lambda: call.size > 100)
            begun = time.monotonic()
            assert (await called(holder, f"/proxy/{other}/")).body == b"hello"
            assert time.monotonic() - begun < 5
            call.leave()
            await running

    run(work())


def test_a_guest_that_dies_breaks_the_answer(holder: Holder, guests: Guests) -> None:
    async def endless(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nbegun")
        await reader.read(1)

    async def work() -> None:
        async with server(endless) as port:
            call = Call(holder, f"/proxy/{port}/")
            running = asyncio.ensure_future(call.run())
            await until(lambda: call.body == b"begun")
            guests.of(holder.id).process.kill()
            guests.of(holder.id).process.wait()
            await asyncio.wait_for(running, 20)
            assert not call.is_complete

    run(work())
