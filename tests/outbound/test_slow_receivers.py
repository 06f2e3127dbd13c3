"""One deadline bounds a whole request. Each receiver here would come to a valid end, much later: a client that bounds
single reads, or forgets a part, gets its answer."""

from __future__ import annotations

import socket
import ssl
import time

import pytest

from outbound.http import Answer, OutboundError, Targets, post
from tests.outbound.outside import (
    OK,
    Authority,
    Behaviour,
    Outside,
    Receiver,
    answering,
    read_request,
)

HOST = "hooks.example.com"
DEADLINE = 0.7
STEP = 0.1


def drip(client: socket.socket, data: bytes) -> None:
    """A byte at a time."""
    for position in range(len(data)):
        client.sendall(data[position : position + 1])
        time.sleep(STEP)


def dripping_head(client: socket.socket) -> None:
    read_request(client)
    drip(client, OK)


def dripping_interim_answers(client: socket.socket) -> None:
    read_request(client)
    for _ in range(40):
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(STEP)
    client.sendall(OK)


def dripping_body(client: socket.socket) -> None:
    read_request(client)
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n")
    drip(client, b"x" * 40)


def dripping_chunks(client: socket.socket) -> None:
    read_request(client)
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    drip(client, b"1;" + b"x" * 40 + b"\r\nx\r\n0\r\n\r\n")


def silent(client: socket.socket) -> None:
    read_request(client)
    time.sleep(4)
    client.sendall(OK)


def not_reading(client: socket.socket) -> None:
    time.sleep(4)
    answering(OK)(client)


def reading_slowly(client: socket.socket) -> None:
    for _ in range(40):
        client.recv(1024)
        time.sleep(STEP)
    answering(OK)(client)


def sent(body: bytes, url: str, policy: Targets) -> Answer:
    return post(url, body=body, headers={}, deadline_seconds=DEADLINE, policy=policy)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    "behave", [dripping_head, dripping_interim_answers, silent, not_reading, reading_slowly], ids=lambda b: b.__name__
)
def test_no_receiver_holds_a_request_past_its_deadline(
    outside: Outside, authority: Authority, behave: Behaviour, tls: bool
) -> None:
    with Receiver(behave, tls=authority.server(HOST) if tls else None) as there, pytest.raises(OutboundError) as caught:
        sent(bytes(8 << 20), *place(outside, there, tls))
    assert caught.value.kind == "timeout"
    assert there.connections == 1


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("behave", [dripping_body, dripping_chunks], ids=lambda b: b.__name__)
def test_a_body_that_does_not_end_leaves_the_status(
    outside: Outside, authority: Authority, behave: Behaviour, tls: bool
) -> None:
    with Receiver(behave, tls=authority.server(HOST) if tls else None) as there:
        answer = sent(b"{}", *place(outside, there, tls))
    assert (answer.status, answer.truncated) == (200, True)
    assert len(answer.body) < 40


def place(outside: Outside, there: Receiver, tls: bool) -> tuple[str, Targets]:
    if not tls:
        return f"http://127.0.0.1:{there.port}/", Targets.of([f"127.0.0.1:{there.port}"])
    outside.names[HOST] = [["8.8.8.8"]]
    outside.internet["8.8.8.8"] = there.port
    return f"https://{HOST}/", Targets()


def no_handshake(client: socket.socket) -> None:
    client.recv(4096)
    time.sleep(4)


class DrippingHandshake:
    """A server's part of TLS, sent a byte at a time."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def __call__(self, client: socket.socket) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = self._context.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            incoming.write(client.recv(65536))
            try:
                server.do_handshake()
            except ssl.SSLWantReadError:
                drip(client, outgoing.read())


@pytest.mark.parametrize("how", ["silent", "dripping"])
def test_a_handshake_that_stalls_ends_with_the_deadline(outside: Outside, authority: Authority, how: str) -> None:
    behave = no_handshake if how == "silent" else DrippingHandshake(authority.server(HOST))
    with Receiver(behave) as there, pytest.raises(OutboundError) as caught:
        sent(b"{}", *place(outside, there, tls=True))
    assert caught.value.kind == "timeout"


def test_a_name_server_that_never_answers_ends_with_the_deadline(outside: Outside) -> None:
    outside.names[HOST] = []
    with pytest.raises(OutboundError) as caught:
        sent(b"{}", f"https://{HOST}/", Targets())
    assert caught.value.kind in {"name", "timeout"}
    assert outside.dialled == []


def test_what_the_name_took_is_taken_from_the_rest(
    outside: Outside, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to each address gets what is left, not a deadline of its own."""
    outside.names[HOST] = [["8.8.8.8", "2606:4700:4700::1111"]]
    given: list[float] = []

    def unanswered(address: str, port: int, seconds: float) -> socket.socket:
        given.append(seconds)
        time.sleep(min(seconds, 5))
        raise TimeoutError

    monkeypatch.setattr("outbound.connection.open_socket", unanswered)
    with pytest.raises(OutboundError) as caught:
        sent(b"{}", f"https://{HOST}/", Targets())
    assert caught.value.kind == "timeout"
    assert sum(given) <= DEADLINE
