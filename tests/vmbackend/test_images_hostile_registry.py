"""A registry that names places of the operator's network: the realm of a token, the target of a redirect."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.free_ports import free_port
from tests.vmbackend.stores import insecure_store, pull, store
from vmbackend import errors
from vmbackend.images.store import ImageStore

__all__ = ["store"]
pytestmark = pytest.mark.host

CONFIG = b'{"architecture": "amd64", "os": "linux"}'
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": f"sha256:{hashlib.sha256(CONFIG).hexdigest()}",
            "size": len(CONFIG),
        },
        "layers": [],
    }
).encode()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def inner() -> Iterator[tuple[int, list[str]]]:
    """A service of the operator's network; its port, and the paths that it was asked for."""
    asked: list[str] = []

    class Inner(Quiet):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.answer(404, b"{}")

    with serving(Inner) as port:
        yield port, asked


@contextmanager
def hostile(way: str, place: str) -> Iterator[str]:
    """A registry that leads to `place`, by the realm of its token or by redirects of blobs."""

    class Hostile(Quiet):
        def do_GET(self) -> None:
            if way == "realm":
                self.answer(401, WWW_Authenticate=f'Bearer realm="http://{place}/token",service="x"')
            elif "/blobs/" in self.path:
                self.answer(307, Location=f"http://{place}/blob")
            elif "/manifests/" in self.path:
                self.answer(200, MANIFEST, Content_Type="application/vnd.oci.image.manifest.v1+json")
            else:
                self.answer(200, b"{}", Docker_Distribution_Api_Version="registry/2.0")

    with serving(Hostile) as port:
        yield f"127.0.0.1:{port}"


# Go uses no proxy for the first two; the last two reach this host's loopback through the proxy, or without one.
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:0:127.0.0.1]"])
@pytest.mark.parametrize("way", ["realm", "redirect"])
def test_no_inner_address_is_reached_and_open_ports_look_like_closed_ones(
    store: ImageStore, inner: tuple[int, list[str]], tmp_path: Path, way: str, host: str
) -> None:
    port, asked = inner
    messages = []
    for target in (port, free_port()):
        with hostile(way, f"{host}:{target}") as address:
            with pytest.raises(errors.ImageUnreachable) as caught:
                pull(insecure_store(store, tmp_path, address), f"{address}/app:1")
            messages.append(caught.value.message.replace(address, "ADDRESS"))
    assert asked == []
    assert messages[0] == messages[1]


def test_failures_of_the_network_have_one_message(store: ImageStore, tmp_path: Path) -> None:
    """A closed port, one that never answers, one without TLS, an address that is not public, an unknown name."""
    found = set()
    with socket.create_server(("127.0.0.1", 0)) as silent, serving(Quiet) as plain:
        never = f"127.0.0.1:{silent.getsockname()[1]}"
        closed = f"127.0.0.1:{free_port()}"
        listed = insecure_store(store, tmp_path, never, closed, registry_timeout=2)
        private = insecure_store(store, tmp_path, private_registries=(f"127.0.0.1:{plain}",))
        for store_, domain in (
            (listed, never),
            (listed, closed),
            (private, f"127.0.0.1:{plain}"),
            (store, "10.0.0.7:443"),
            (store, "[::7f00:1]:5000"),
            (store, "nothing.invalid"),
        ):
            with pytest.raises(errors.ImageUnreachable) as caught:
                pull(store_, f"{domain}/app:1")
            found.add(caught.value.message.replace(domain, "DOMAIN"))
    assert len(found) == 1
