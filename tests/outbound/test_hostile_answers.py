"""Answers that are meant to cost memory or time, to be misread, or to write into logs."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbound import connection
from outbound.http import MAX_BODY, Answer, OutboundError, Targets, post
from tests.outbound.outside import OK, Authority, Behaviour, Outside, Receiver, answering, read_request

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def endless(start: bytes, piece: bytes) -> Behaviour:
    """Sends until the client closes the connection, in pieces of at least 64 KiB."""

    def behave(client: socket.socket) -> None:
        read_request(client)
        client.sendall(start)
        for block in repeat(piece * (65536 // len(piece) + 1)):
            client.sendall(block)

    return behave


def request_to(there: Receiver) -> Answer:
    policy = Targets.of([f"127.0.0.1:{there.port}"])
    return post(f"http://127.0.0.1:{there.port}/", body=b"{}", headers={}, deadline_seconds=10, policy=policy)


def failure(behave: Behaviour) -> OutboundError:
    with Receiver(behave) as there, pytest.raises(OutboundError) as caught:
        request_to(there)
    return caught.value


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"", b"x"),
        (b"HTTP/1.1 200 ", b"x"),
        (HEAD + b"X-A: ", b"x"),
        (HEAD, b"X-A: 1\r\n"),
        (HEAD, b"X-A: 1\r\n folded\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
        (b"", b"\r\n"),
        (b"", b"\0"),
    ],
    ids=lambda part: part[:12].decode("latin-1").encode("unicode_escape").decode(),
)
def test_a_head_without_end_is_given_up(start: bytes, piece: bytes) -> None:
    assert failure(endless(start, piece)).kind in {"too_large", "protocol"}


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (CHUNKED + b"1;", b"x"),
        (CHUNKED, b"1\r\nx\r\n"),
        (CHUNKED, b"1;" + b"x" * 90 + b"\r\nx\r\n"),
        (CHUNKED + b"0\r\n", b"X-A: 1\r\n"),
        (CHUNKED + b"ffffffff\r\n", b"x"),
        (HEAD + b"\r\n", b"x"),
    ],
)
def test_a_body_without_end_is_cut_off(start: bytes, piece: bytes) -> None:
    with Receiver(endless(start, piece)) as there:
        answer = request_to(there)
    assert (answer.status, answer.truncated) == (200, True)
    assert len(answer.body) <= MAX_BODY


def test_a_body_in_very_many_pieces_is_cut_off_early() -> None:
    """Each piece costs as much as a large one: 64 KiB of single bytes would take the CPU of 300 honest answers."""
    with Receiver(endless(CHUNKED, b"1\r\nx\r\n")) as there:
        answer = request_to(there)
    assert (answer.status, answer.truncated) == (200, True)
    assert len(answer.body) <= 1025


@pytest.mark.parametrize(
    "piece",
    [
        b"\x14\x03\x03\x00\x01\x01",  # change of cipher
        b"\x15\x03\x03\x00\x02\x01\x00",  # a warning
        b"\x16\x03\x03\x00\x00",  # a part of the handshake without content
        b"\x16\x03\x03\x00\x04\x00\x00\x00\x00",  # a request to begin again
        b"\x16\x03\x03\x40\x00\x02\xff\xff\xff" + bytes(16380),  # a hello of 16 MiB
        b"\x17\x03\x03\x00\x00",
        b"\x00",
        OK,
    ],
    ids=lambda piece: piece[:9].hex(),
)
def test_a_handshake_without_end_is_given_up(outside: Outside, piece: bytes) -> None:
    def behave(client: socket.socket) -> None:
        client.recv(65536)
        for block in repeat(piece * (65536 // len(piece) + 1)):
            client.sendall(block)

    with Receiver(behave) as there:
        outside.internet["8.8.8.8"] = there.port
        with pytest.raises(OutboundError) as caught:
            post("https://8.8.8.8/", body=b"", headers={}, deadline_seconds=10, policy=Targets())
    assert caught.value.kind in {"tls", "too_large"}


@pytest.mark.parametrize(("kind", "start"), [("head", b""), ("body", HEAD + b"\r\n")])
def test_records_of_one_byte_without_end_are_given_up(
    outside: Outside, authority: Authority, kind: str, start: bytes
) -> None:
    def behave(client: socket.socket) -> None:
        client.sendall(start)
        for byte in repeat(b"x"):
            client.sendall(byte)

    with Receiver(behave, tls=authority.server("8.8.8.8")) as there:
        outside.internet["8.8.8.8"] = there.port
        if kind == "body":
            assert post("https://8.8.8.8/", body=b"", headers={}, deadline_seconds=10, policy=Targets()).truncated
        else:
            with pytest.raises(OutboundError) as caught:
                post("https://8.8.8.8/", body=b"", headers={}, deadline_seconds=10, policy=Targets())
            assert caught.value.kind in {"too_large", "protocol"}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 -200 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 600 OK\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999999\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nX-A : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"220 mail.example.com ESMTP\r\n",
        b"-ERR unknown command\r\n",
    ],
)
def test_what_is_not_an_answer_of_http_is_an_error_with_a_fixed_sentence(raw: bytes) -> None:
    error = failure(answering(raw))
    assert (error.kind, error.sentence) == ("protocol", OutboundError("protocol").sentence)


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"Content-Length: 100\r\n\r\nshort",
        CHUNKED + b"5\r\nshort",
        CHUNKED + b"5\r\nshort\r\nzz\r\n",
        CHUNKED + b"5\r\nshort\r\n-1\r\n",
    ],
)
def test_a_body_that_is_broken_off_leaves_the_status(raw: bytes) -> None:
    with Receiver(answering(raw)) as there:
        answer = request_to(there)
    assert (answer.status, answer.body, answer.truncated) == (200, b"short", True)


def test_a_gzip_bomb_stays_packed() -> None:
    packed = gzip.compress(bytes(32 << 20))
    head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with Receiver(answering(HEAD + head + packed)) as there:
        assert request_to(there).body == packed[:MAX_BODY]


def test_nothing_of_an_answer_ends_a_line_or_controls_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    evil = b"a\x1b[2Jb\x85c\x9bd\x7fe\xe2\x80\xa8f\tg"
    with Receiver(answering(b"HTTP/1.1 200 " + evil + b"\r\nX-A: " + evil + b"\r\nContent-Length: 0\r\n\r\n")) as there:
        answer = request_to(there)
    assert all(text.isascii() and text.isprintable() for pair in answer.headers.items() for text in pair)
    assert "\\x1b[2J" in answer.headers["x-a"]
    assert "2J" not in caplog.text


def test_names_and_sentences_in_the_log_are_one_line(outside: Outside, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outside.names["hooks.example.com"] = [["127.0.0.1"]]
    for url in ("https://hooks.example.com/\n2026 CRITICAL", "https://hooks.example.com/?key=secret"):
        with pytest.raises(OutboundError):
            post(url, body=b"", headers={}, policy=Targets())
    assert [record.getMessage().count("\n") for record in caplog.records] == [0]
    assert "secret" not in caplog.text


PARTS = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 204 No\r\n", b"HTTP/1.1 ", b"304", b" "),
        *(
            b"Content-Length: 5\r\n",
            b"Content-Length: 0\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: upgrade\r\n",
        ),
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b"ffffffffffffffffffff\r\n",
            b"X-A:",
            b"\x80\xff",
            b"\0",
        ),
    ]
)


@given(st.lists(st.one_of(PARTS, st.binary(max_size=20)), max_size=12).map(b"".join))
def test_any_bytes_are_an_answer_or_an_error(raw: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs, pytest.MonkeyPatch.context() as patch:
        theirs.sendall(raw)
        theirs.shutdown(socket.SHUT_WR)
        patch.setattr(connection, "open_socket", lambda *_: ours)
        try:
            answer = post("http://127.0.0.1:1/", body=b"{}", headers={}, policy=Targets.of(["127.0.0.1:1"]))
        except OutboundError as error:
            assert error.kind == "protocol"  # noqa: PT017 - an answer is as good
        else:
            assert 200 <= answer.status <= 599
    assert ours.fileno() == -1


def test_what_a_receiver_did_not_read_does_not_stay_in_the_kernel() -> None:
    with Receiver(lambda client: threading.Event().wait(3)) as there:
        url = f"http://127.0.0.1:{there.port}/"
        with pytest.raises(OutboundError) as caught:
            post(
                url,
                body=bytes(16 << 20),
                headers={},
                deadline_seconds=0.5,
                policy=Targets.of([f"127.0.0.1:{there.port}"]),
            )
        assert caught.value.kind == "timeout"
        assert connections_to(there.port) == []


def test_a_connection_takes_no_more_than_its_bytes() -> None:
    """Whatever TLS and HTTP make of them."""
    ours, theirs = socket.socketpair()
    sender = threading.Thread(target=send_on, args=(theirs,))
    sender.start()
    wire = connection.Wire(ours, time.monotonic() + 10)
    taken: list[bytes] = []
    with pytest.raises(OutboundError, match="too_large"):
        taken.extend(iter(wire.receive_bytes, b""))
    wire.close_now(reset=True)
    sender.join()
    assert sum(map(len, taken)) == 256 << 10


def send_on(client: socket.socket) -> None:
    with suppress(OSError), client:
        while True:
            client.sendall(bytes(65536))


def connections_to(port: int) -> list[str]:
    """The kernel's sockets, also those that no process has any more."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[3] for row in rows if int(row[2].rpartition(":")[2], 16) == port]


def hostile_answers() -> Iterator[Behaviour]:
    packed = gzip.compress(bytes(32 << 20))
    yield endless(HEAD + b"X-A: ", b"x")
    yield endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    yield endless(CHUNKED, b"1\r\nx\r\n")
    yield endless(CHUNKED + b"1;", b"x")
    yield answering(HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_thousand_hostile_answers_leave_no_memory_and_no_descriptor_behind() -> None:
    receivers = [Receiver(behave) for behave in hostile_answers()]

    def request_all(times: int) -> None:
        for there in [there for there in receivers for _ in range(times)]:
            with suppress(OutboundError):
                request_to(there)

    request_all(20)
    before, opened = resident_kib(), descriptors()
    request_all(200)
    for there in receivers:
        there.__exit__()
    assert resident_kib() - before < 16 * 1024
    assert descriptors() <= opened
