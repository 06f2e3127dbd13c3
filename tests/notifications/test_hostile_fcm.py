"""Whatever comes in place of FCM's answers: an attempt ends in time, holds little, and goes nowhere else."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from notifications.content import Content
from notifications.providers import fcm
from notifications.providers.bounded_answers import MAX_ANSWER_BYTES
from notifications.providers.fcm import FcmProvider
from notifications.sends.results import DELIVERED, Result
from tests.notifications.google import google, loopback_adapter

Script = Callable[[socket.socket], None]
SECONDS = 0.5
CONTENT = Content("t", "b", {})
MEBIBYTE = b"1," * (1 << 19)
FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"


class Place:
    """A server that writes what its script says. `visits`: connections."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.visits = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.origin = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.visits += 1
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.recv(1 << 16)
                self._script(connection)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def place(script: Script) -> Iterator[Place]:
    made = Place(script)
    try:
        yield made
    finally:
        made.close()


def answer(body: bytes, status: int = 200, *headers: str) -> Script:
    lines = "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""])
    return lambda connection: connection.sendall(lines.encode() + body)


def endless(first: bytes, piece: bytes, pause: float = 0.0) -> Script:
    def write(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(piece)
            time.sleep(pause)

    return write


def sent_to(script: Script, path: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """What comes of one message to an FCM that answers so."""
    monkeypatch.setattr(fcm, "ANSWER_SECONDS", SECONDS)
    with google() as logins, place(script) as server:
        monkeypatch.setattr(fcm, "BoundedAdapter", loopback_adapter(server.origin))
        provider = FcmProvider(logins.write_credentials(path / "account.json"), 2)
        try:
            return provider.send({"fcm_token": "phone"}, CONTENT)
        finally:
            provider.close()


HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "headers, one at a time": endless(HEAD, b"X-A: b\r\n", 0.1),
    "a body, byte by byte": endless(HEAD + b"Content-Length: 9999\r\n\r\n", b" ", 0.1),
    "a chunked body": endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.1),
    "interim answers": endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 1000),
    "a line": endless(b"HTTP/1.1 200 ", b"x" * 65_536),
    "a large body": endless(HEAD + b"\r\n[", MEBIBYTE),
}


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_an_end_is_left(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.append(sent_to(script, tmp_path, monkeypatch)), daemon=True)
    thread.start()
    thread.join(20)
    assert [each.code for each in found], "the thread is still there"
    assert found[0].code != ""


def _error(**error: object) -> bytes:
    return json.dumps({"error": error}).encode()


STRANGE = {
    "nested": answer(b"[" * (MAX_ANSWER_BYTES - 1000)),
    "nested, as an error": answer(b"[" * (MAX_ANSWER_BYTES - 1000), 404),
    "compressed": answer(gzip.compress(b" " * (1 << 20)), 200, "Content-Encoding: gzip"),
    "a text for an error": answer(b'{"error": "x"}', 400),
    "a text for details": answer(_error(details="x", status=5), 400),
    "numbers for details": answer(_error(details=[1, None, {"@type": FCM_ERROR, "errorCode": ["x"]}]), 404),
    "no text": answer(b"\xff\xfe", 404),
    "a success of an error": answer(_error(details=[{"@type": FCM_ERROR, "errorCode": "UNREGISTERED"}])),
    "nothing": answer(b"", 204),
}


@pytest.mark.parametrize("script", STRANGE.values(), ids=STRANGE)
def test_what_fcm_never_answers_is_no_outcome_of_a_device(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sent_to(script, tmp_path, monkeypatch)
    assert (found.code, found.is_gone) == ("messaging/unknown-error", False)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with place(answer(b'{"name": "x"}')) as elsewhere:
        found = sent_to(answer(b"", status, f"Location: {elsewhere.origin}/x"), tmp_path, monkeypatch)
        assert (found.code, elsewhere.visits) == ("messaging/unknown-error", 0)


def test_a_login_without_an_end_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcm, "ANSWER_SECONDS", SECONDS)
    with google() as logins, place(ENDLESS["a body, byte by byte"]) as slow:
        path = logins.write_credentials(tmp_path / "account.json")
        path.write_text(path.read_text().replace(logins.origin, slow.origin))
        provider = FcmProvider(path, 2)
        found: list[Result] = []
        thread = threading.Thread(target=lambda: found.append(provider.send({"fcm_token": "x"}, CONTENT)), daemon=True)
        thread.start()
        thread.join(20)
        assert [each.code for each in found] == ["messaging/server-unavailable"]
        provider.close()


def test_an_answer_that_comes_within_ten_seconds_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(connection: socket.socket) -> None:
        time.sleep(7)
        answer(b'{"name": "projects/x/messages/1"}', 200, "Content-Type: application/json")(connection)

    with google() as logins, place(late) as server:
        monkeypatch.setattr(fcm, "BoundedAdapter", loopback_adapter(server.origin))
        provider = FcmProvider(logins.write_credentials(tmp_path / "account.json"), 2)
        assert provider.send({"fcm_token": "phone"}, CONTENT) == DELIVERED
        provider.close()
