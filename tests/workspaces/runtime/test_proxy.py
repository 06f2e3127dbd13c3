"""Requests to servers on a machine's loopback, by the runtime, with a hold of this host as its guest."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.free_ports import free_port
from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.proxied import Call, answering, called, ok, run, server, until
from vmbackend.fake.guest import FakeGuestSession
from workspaces.runtime.proxy import exchange

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]
MIB = 1 << 20


def code(call: Call) -> tuple[int, str]:
    return call.status, json.loads(call.body)["code"]


def test_a_request_and_its_answer_pass_as_they_are(holder: Holder, guests: Guests) -> None:
    heads: list[bytes] = []
    answer = ok(b"made", b"X-One: 1", b"X-One: 2", b"Content-Type: text/html; charset=latin1", b"Vary: a")

    async def work() -> None:
        async with server(answering(answer.replace(b"200 OK", b"207 Multi"), heads)) as port:
            call = await called(
                holder, f"/proxy/{port}/a%20b/%2e%2e;x//c?q=1&q=%ff&r", ("X-Mine", "a"), ("X-Mine", "b"),
                ("Content-Type", "text/x; charset=base64"), ("Content-Length", "0"), method="PROPFIND",
            )  # fmt: skip
            assert (call.status, call.body, call.is_complete) == (207, b"made", True)
            assert call.header("X-One") == ["1", "2"]
            assert call.header("Content-Type") == ["text/html; charset=latin1"]
            lines = heads[0].decode().split("\r\n")
            assert lines[0] == "PROPFIND /a%20b/%2e%2e;x//c?q=1&q=%ff&r HTTP/1.1"
            assert lines.count("x-mine: a") == lines.count("x-mine: b") == 1
            assert "content-type: text/x; charset=base64" in lines
            assert f"Host: localhost:{port}" in lines

    run(work())


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "X-ANY"])
def test_every_method_passes_with_its_body(holder: Holder, guests: Guests, method: str) -> None:
    async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(head.split(b" ")[0] + b" " + await reader.readexactly(5)))

    async def work() -> None:
        async with server(echo) as port:
            call = await called(
                holder, f"/proxy/{port}/", ("Content-Length", "5"), method=method, pieces=[b"he", b"llo"]
            )
            assert call.body == method.encode() + b" hello"

    run(work())


def test_a_head_has_no_body(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        async with server(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")) as port:
            call = await called(holder, f"/proxy/{port}", method="HEAD")
            assert (call.status, call.header("content-length"), call.body) == (200, ["9"], b"")

    run(work())


def test_a_body_without_a_length_is_passed_in_chunks(holder: Holder, guests: Guests) -> None:
    heads: list[bytes] = []

    async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        data = await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + data)

    async def work() -> None:
        async with server(echo) as port:
            call = await called(
                holder, f"/proxy/{port}/", ("Transfer-Encoding", "chunked"), method="POST", pieces=[b"ab", b"cd"]
            )
            assert call.body == b"abcd"
            assert call.header("Transfer-Encoding") == call.header("Content-Length") == []
            assert b"Transfer-Encoding: chunked\r\n" in heads[0]

    run(work())


def test_the_token_the_target_and_headers_of_one_hop_stay_here(holder: Holder, guests: Guests) -> None:
    heads: list[bytes] = []

    async def work() -> None:
        async with server(answering(ok(), heads)) as port:
            target = f"127.0.0.1:{port}"
            call = await called(
                holder, f"/proxy/x?a=1&proxy_target={target}&token={holder.token}&token=mine&b=2",
                ("X-Some-Proxy-Target", target), ("X-Edge", "secret"), ("X-Edge-Caller", "secret"),
                ("Connection", "X-Hop, close"), ("X-Hop", "1"), ("Keep-Alive", "5"), ("TE", "trailers"),
                ("Upgrade", "h2c"), ("Proxy-Authorization", "x"), ("Referer", f"http://x/?token={holder.token}"),
                ("Cookie", "sessionid=secret; mine=1; csrftoken=x"), ("Expect", "100-continue"),
            )  # fmt: skip
            assert call.body == b"hello"
            head = heads[0].decode()
            assert head.startswith("GET /x?a=1&token=mine&b=2 HTTP/1.1\r\n")
            assert {line.partition(":")[0].lower() for line in head.split("\r\n")[1:]} == {
                "host", "cookie", "",
            }  # fmt: skip
            assert "cookie: mine=1\r\n" in head
            assert f"Host: {target}" in head
            assert holder.token not in head

    run(work())


def test_an_answer_does_not_act_on_the_origin(holder: Holder, guests: Guests, settings: Any) -> None:
    answer = ok(
        b"x", b"Set-Cookie: a=1; Domain=example.org; Path=/", b"Set-Cookie: b=2", b"Service-Worker-Allowed: /",
        b'Clear-Site-Data: "*"', b"Content-Security-Policy: default-src *", b"X-Content-Type-Options: no",
        b"Strict-Transport-Security: max-age=1", b"Connection: X-Hop", b"X-Hop: 1", b"Server: mine", b"X-Mine: 1",
    )  # fmt: skip

    async def headers() -> Call:
        async with server(answering(answer)) as port:
            return await called(holder, f"/proxy/{port}/")

    call = asyncio.run(headers())
    assert call.header("Content-Security-Policy") == ["sandbox allow-scripts allow-forms"]
    assert call.header("X-Content-Type-Options") == ["nosniff"]
    assert call.header("X-Mine") == ["1"]
    assert call.header("Access-Control-Allow-Origin") == ["*"]
    gone = ("Set-Cookie", "Service-Worker-Allowed", "Clear-Site-Data", "Strict-Transport-Security", "X-Hop", "Server")
    assert [call.header(name) for name in gone] == [[]] * len(gone)
    settings.ENV = settings.ENV.model_copy(update={"runtime_proxy_cookies": True})
    assert asyncio.run(headers()).header("Set-Cookie") == []
    settings.ENV = settings.ENV.model_copy(update={"runtime_url": "https://runtime.example.org"})
    assert asyncio.run(headers()).header("Set-Cookie") == ["a=1; Path=/", "b=2"]


@pytest.mark.parametrize(
    "target", ["10.0.0.1:80", "example.org:80", "0.0.0.0:80", "128.0.0.1:80", "[::2]:80", "127.0.0.1", "80 ", "0",
               "65536", "127.0.0.1:", "http://127.0.0.1:80", "127.0.0.1:80/x", "127.1:80", "127.0.0.01:80", "x"],
)  # fmt: skip
def test_other_targets_are_refused(holder: Holder, guests: Guests, target: str) -> None:
    if target == "80 ":
        target = "+80"
    call = asyncio.run(called(holder, "/proxy/", ("X-Proxy-Target", target)))
    assert code(call) == (400, "validation_error")
    assert guests.holds == {}


def test_a_target_is_named_once_and_not_the_control_port(holder: Holder, guests: Guests) -> None:
    for path, *headers in (
        ("/proxy/",), ("/proxy/x/80",), ("/proxy/?proxy_target=80", ("X-Proxy-Target", "81")),
        (f"/proxy/{holder.workspace.control_port}/",), ("/%70roxy/80/",),
    ):  # fmt: skip
        assert code(asyncio.run(called(holder, path, *headers)))[0] in (400, 404)
    assert guests.holds == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1"])
def test_all_of_the_loopback_is_reached(holder: Holder, guests: Guests, host: str) -> None:
    async def work() -> None:
        async with server(answering(ok()), host) as port:
            name = f"[{host}]" if ":" in host else host
            for path, *headers in (
                ("/proxy/", ("X-Proxy-Target", f"{name}:{port}")), (f"/proxy/?x_any_target={name}:{port}",),
                (f"/runtimes/local/proxy/?proxy_target={name}:{port}",),
                (f"/{holder.id}/runtimes/default/proxy/", ("X-Any-Proxy-Target", f"{name}:{port}")),
            ):  # fmt: skip
                assert (await called(holder, path, *headers)).body == b"hello"
            if host != "127.8.9.1":
                assert (await called(holder, f"/proxy/{port}/")).body == b"hello"

    run(work())


def test_only_a_token_of_the_runtime_passes(holder: Holder, guests: Guests) -> None:
    for token, status in (("", 401), ("wrong", 401), ("rtg_x:y:z", 401)):
        holder.token, kept = token, holder.token
        assert asyncio.run(called(holder, f"/proxy/80/?token={kept}")).status == status
        holder.token = kept
    assert guests.holds == {}


def test_nothing_listens(holder: Holder, guests: Guests) -> None:
    assert code(asyncio.run(called(holder, f"/proxy/{free_port()}/"))) == (502, "proxy_refused")


def test_a_server_that_does_not_answer(holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "HEAD_SECONDS", 1.5)
    gone = asyncio.Event()

    async def silent(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(1) == b""
        gone.set()

    async def work() -> None:
        async with server(silent) as port:
            begun = time.monotonic()
            assert code(await called(holder, f"/proxy/{port}/")) == (504, "proxy_timeout")
            assert 1 < time.monotonic() - begun < 10
            await asyncio.wait_for(gone.wait(), 10)

    run(work())


def test_events_pass_at_once_until_the_client_leaves(holder: Holder, guests: Guests) -> None:
    gone, more = asyncio.Event(), asyncio.Event()

    async def events(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await more.wait()
        writer.write(b"data: 2\n\n")
        assert await reader.read(1) == b""
        gone.set()

    async def work() -> None:
        async with server(events) as port:
            call = Call(holder, f"/proxy/{port}/")
            running = asyncio.ensure_future(call.run())
            await until(lambda: call.body == b"data: 1\n\n")
            more.set()
            await until(lambda: call.body == b"data: 1\n\ndata: 2\n\n")
            call.leave()
            await asyncio.wait_for(gone.wait(), 5)
            await running

    run(work())


def test_a_client_that_leaves_before_the_answer_ends_the_connection(holder: Holder, guests: Guests) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def silent(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        assert await reader.read(1) == b""
        gone.set()

    async def work() -> None:
        async with server(silent) as port:
            call = Call(holder, f"/proxy/{port}/")
            running = asyncio.ensure_future(call.run())
            await asyncio.wait_for(begun.wait(), 20)
            call.leave()
            await asyncio.wait_for(gone.wait(), 5)
            await running

    run(work())


def test_both_directions_go_on_at_once(holder: Holder, guests: Guests) -> None:
    more = asyncio.Event()

    async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        writer.write(await reader.readexactly(5))
        writer.write(await reader.readexactly(5))

    async def work() -> None:
        async with server(echo) as port:
            call = Call(
                holder, f"/proxy/{port}/", ("Content-Length", "10"), method="POST", pieces=[b"first", more, b"again"]
            )
            running = asyncio.ensure_future(call.run())
            await until(lambda: call.body == b"first")
            more.set()
            await running
            assert (call.body, call.is_complete) == (b"firstagain", True)

    run(work())


def test_an_answer_that_ends_early_breaks_the_clients_connection(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        for answer in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        ):
            async with server(answering(answer)) as port:
                call = await called(holder, f"/proxy/{port}/")
                assert (call.status, call.body, call.is_complete) == (200, b"short", False)

    run(work())


def test_a_machine_with_an_older_kit_says_that_it_needs_a_restart(holder: Holder) -> None:
    assert FakeGuestSession.hold_of is None
    assert code(asyncio.run(called(holder, "/proxy/80/"))) == (409, "guest_kit_outdated")


@pytest.mark.parametrize("end", ["token", "disable"])
def test_an_open_answer_ends_with_the_token(
    api: Caller, holder: Holder, guests: Guests, vmhost: FakeHost, end: str
) -> None:
    gone = asyncio.Event()

    async def endless(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nbegun")
        assert await reader.read(1) == b""
        gone.set()

    async def work() -> None:
        async with server(endless) as port:
            call = Call(holder, f"/proxy/{port}/")
            running = asyncio.ensure_future(call.run())
            await until(lambda: call.body == b"begun")
            await asyncio.to_thread(api.post, f"/workspace/{holder.id}/runtime-api-access/{end}")
            begun = time.monotonic()
            await running
            assert time.monotonic() - begun < 3
            assert not call.is_complete
            await asyncio.wait_for(gone.wait(), 5)

    run(work())
