"""Connections of the proxy that serve one request after another."""

from __future__ import annotations

import asyncio

import pytest

from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.proxied import Call, Serve, called, ok, run, server, until
from vmbackend.guest.hold import connections

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]


class Keeping:
    """A server that answers requests of a connection one after another, and counts what came by each."""

    def __init__(self, *, answer: bytes = ok(), at_most: int = 100) -> None:
        self.counts: list[int] = []
        self.ended = 0
        self.answer, self.at_most = answer, at_most

    @property
    def serve(self) -> Serve:
        async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            place = len(self.counts)
            self.counts.append(0)
            try:
                while self.counts[place] < self.at_most:
                    self.counts[place] += 1
                    length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                    await reader.readexactly(int(length or 0))
                    writer.write(self.answer)
                    head = await reader.readuntil(b"\r\n\r\n")
            finally:
                self.ended += 1

        return serve


async def get(holder: Holder, port: int, *, method: str = "GET") -> Call:
    has_body = method == "POST"
    headers = [("Content-Length", "2")] if has_body else []
    call = await called(holder, f"/proxy/{port}/", *headers, method=method, pieces=[b"hi"] if has_body else (b"",))
    assert call.is_complete
    return call


def test_requests_one_after_another_share_a_connection(holder: Holder, guests: Guests) -> None:
    kept = Keeping()

    async def work() -> None:
        async with server(kept.serve) as port:
            for _ in range(5):
                assert (await get(holder, port)).body == b"hello"
            assert kept.counts == [5]

    run(work())


def test_requests_at_once_have_one_each(holder: Holder, guests: Guests) -> None:
    kept = Keeping()

    async def work() -> None:
        async with server(kept.serve) as port:
            for _ in range(2):
                calls = await asyncio.gather(*(get(holder, port) for _ in range(4)))
                assert [call.body for call in calls] == [b"hello"] * 4
            assert len(kept.counts) <= 4
            assert sum(kept.counts) == 8

    run(work())


def test_what_a_server_may_not_get_twice_has_a_connection_of_its_own(holder: Holder, guests: Guests) -> None:
    kept = Keeping()

    async def work() -> None:
        async with server(kept.serve) as port:
            for method in ("POST", "POST", "DELETE", "GET"):
                assert (await get(holder, port, method=method)).body == b"hello"
            assert sorted(kept.counts) == [1, 1, 2]

    run(work())


def test_a_server_that_closes_between_two_requests_is_asked_again(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        for at_most in (1, 2):
            kept = Keeping(at_most=at_most)
            async with server(kept.serve) as port:
                for _ in range(6):
                    call = await get(holder, port)
                    assert (call.status, call.body) == (200, b"hello")
                assert sum(kept.counts) == 6

    run(work())


def test_a_server_that_answers_nothing_is_asked_no_more_than_twice(holder: Holder, guests: Guests) -> None:
    asked = 0

    async def once(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            writer.write(ok())
            await reader.readuntil(b"\r\n\r\n")
            asked += 1

    async def work() -> None:
        async with server(once) as port:
            assert (await get(holder, port)).status == 200
            assert (await get(holder, port)).status == 502
            assert asked == 3

    run(work())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ok() + b"more", id="bytes-after-the-answer"),
        pytest.param(ok() + ok(b"another"), id="two-answers"),
        pytest.param(ok(b"hello", b"Connection: close"), id="close"),
        pytest.param(ok().replace(b"1.1", b"1.0"), id="of-1.0"),
    ],
)
def test_a_connection_with_more_to_say_is_not_used_again(holder: Holder, guests: Guests, answer: bytes) -> None:
    kept = Keeping(answer=answer)

    async def work() -> None:
        async with server(kept.serve) as port:
            for _ in range(3):
                assert (await get(holder, port)).body == b"hello"
            assert kept.counts == [1, 1, 1]

    run(work())


def test_an_answer_that_comes_before_it_was_asked_for_is_nobodys(holder: Holder, guests: Guests) -> None:
    more = asyncio.Event()

    async def eager(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ok())
        await more.wait()
        writer.write(ok(b"not asked for"))
        await reader.read(1)

    async def work() -> None:
        async with server(eager) as port:
            assert (await get(holder, port)).body == b"hello"
            more.set()
            await asyncio.sleep(0.5)
            assert (await get(holder, port)).body == b"hello"

    run(work())


def test_kept_connections_end_after_a_while(holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEPT_SECONDS", 0.3)
    kept = Keeping()

    async def work() -> None:
        async with server(kept.serve) as port:
            await asyncio.gather(*(get(holder, port) for _ in range(3)))
            await until(lambda: kept.ended == len(kept.counts))
            assert (await get(holder, port)).body == b"hello"

    run(work())


def test_kept_connections_give_way_to_others(holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)

    async def work() -> None:
        async with server(Keeping().serve) as one, server(Keeping().serve) as two, server(Keeping().serve) as three:
            for port in (one, two, three, one):
                assert (await get(holder, port)).body == b"hello"

    run(work())
