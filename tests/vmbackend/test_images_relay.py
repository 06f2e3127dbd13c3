"""The SOCKS5 proxy of image pulls, over loopback sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from typing import Any

import pytest

from outbound import addresses
from vmbackend.images import dial
from vmbackend.images.relay import Relay

GREETING, CHOSEN = b"\x05\x01\x00", b"\x05\x00"
SUCCEEDED, FAILED = b"\x05\x00\x00\x01" + bytes(6), b"\x05\x01\x00\x01" + bytes(6)


def by_name(name: str, port: int) -> bytes:
    return b"\x05\x01\x00\x03" + bytes([len(name)]) + name.encode() + port.to_bytes(2, "big")


@contextmanager
def proxy(*listed: str, refused: Collection[addresses.Network] = ()) -> Iterator[Callable[[], socket.socket]]:
    """Each call makes a connection to the proxy that has chosen its method."""
    listener = socket.create_server(("127.0.0.1", 0))
    relay = Relay([(listener, None)], listed, refused)
    place = listener.getsockname()
    relay.start()

    def connect() -> socket.socket:
        client = socket.create_connection(place, timeout=5)
        client.sendall(GREETING)
        assert client.recv(2) == CHOSEN
        return client

    try:
        yield connect
    finally:
        relay.close()


@pytest.fixture
def echo() -> Iterator[tuple[int, list[Any]]]:
    """A server that sends back what it gets; its port, and the connections that it saw."""
    seen: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, place = listener.accept()
                except OSError:
                    return
                seen.append(place)
                with connection:
                    while data := connection.recv(65536):
                        connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], seen
        listener.shutdown(socket.SHUT_RDWR)


def test_a_listed_place_is_reached_and_bytes_pass_both_ways(echo: tuple[int, list[Any]]) -> None:
    port, _ = echo
    with proxy(f"LOCALHOST:{port}") as connect, connect() as client:
        client.sendall(by_name("localhost", port))
        assert client.recv(10) == SUCCEEDED
        sent = bytes(range(256)) * 8192
        threading.Thread(target=lambda: (client.sendall(sent), client.shutdown(socket.SHUT_WR))).start()
        with client.makefile("rb") as got:
            assert got.read() == sent


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::7f00:1", "nothing.invalid"])
def test_other_places_get_one_answer_whether_open_or_closed(echo: tuple[int, list[Any]], host: str) -> None:
    port, seen = echo
    with proxy("127.0.0.1:1") as connect:
        for target in (port, 2):
            with connect() as client:
                client.sendall(by_name(host, target))
                assert client.recv(64) == FAILED
    assert seen == []


@pytest.mark.parametrize(("refused", "dialled"), [("8.8.8.0/24", []), ("8.8.4.0/24", ["8.8.8.8"])])
def test_a_place_in_a_refused_network_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, refused: str, dialled: list[str]
) -> None:
    found: list[str] = []

    async def no_internet(address: str, _: int) -> socket.socket:
        found.append(address)
        raise OSError

    monkeypatch.setattr(dial, "_connect", no_internet)
    with proxy(refused=[ip_network(refused)]) as connect, connect() as client:
        client.sendall(by_name("8.8.8.8", 443))
        assert client.recv(64) == FAILED
    assert found == dialled


def test_a_closed_port_of_an_allowed_place_gets_the_same_answer() -> None:
    with proxy("127.0.0.1:2") as connect, connect() as client:
        client.sendall(by_name("127.0.0.1", 2))
        assert client.recv(64) == FAILED


def test_a_name_is_resolved_once_and_connected_where_it_was_checked(
    echo: tuple[int, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name whose second answer is another address does not reach that."""
    port, seen = echo
    answers = ["127.0.0.1", "127.0.0.2"]
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "rebind.test":
            return real(host, *arguments, **options)
        asked.append(host)
        return real(answers[len(asked) - 1], *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    monkeypatch.setattr(addresses, "is_own", lambda address: False)
    with proxy() as connect, connect() as client:
        client.sendall(by_name("rebind.test", port))
        assert client.recv(10) == SUCCEEDED
        # The kernel takes the connection before the server does; an answer shows that it has been seen.
        client.sendall(b"x")
        assert client.recv(1) == b"x"
    assert len(asked) == len(seen) == 1


@pytest.mark.parametrize(
    "request_",
    [b"\x05\x02\x00\x01\x7f\0\0\1\0\x50", b"\x05\x01\x00\x05xx", b"\x04\x01\x00\x01xx", b"GET / HTTP/1.1\r\n\r\n"],
    ids=["bind", "address", "version", "http"],
)
def test_anything_but_a_connect_ends_the_connection_and_not_the_proxy(request_: bytes) -> None:
    with proxy() as connect:
        with connect() as client:
            client.sendall(request_)
            with suppress(ConnectionResetError):
                assert client.recv(64) == b""
        with connect():
            pass


def test_the_operators_proxy_gets_the_checked_address(
    echo: tuple[int, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as upstream:

        def serve() -> None:
            connection, _ = upstream.accept()
            with connection:
                heads.append(connection.recv(4096))
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")

        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setenv("https_proxy", f"http://me:p%40ss@127.0.0.1:{upstream.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.setattr(addresses, "is_public", lambda address: True)
        monkeypatch.setattr(addresses, "is_own", lambda address: False)
        with proxy() as connect, connect() as client:
            client.sendall(by_name("127.0.0.9", 443))
            assert client.recv(10) == SUCCEEDED
            assert client.recv(5) == b"hello"
    assert heads[0].startswith(b"CONNECT 127.0.0.9:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in heads[0]
