"""An edge that delivers files: a real Caddy in front of what answers its questions, requests byte by byte."""

from __future__ import annotations

import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler

from django.conf import settings
from django.db import connections

from cdn.delivery_views.edge_path import CdnPath
from cdn.models import File, Variant
from cdn.states import FileStatus
from cdn.storage import original_key, remove_work, store_file, variant_key, work_folder
from cdn.storage.places import cdn_folder
from cdn.types import UTF8_PREFIX, file_type
from supervise.instance import Instance, load_instance
from tests.commands.conftest import short_folder
from tests.commands.test_edge import open_edge
from tests.free_ports import free_port
from tests.pages.edge_site import Answer, answer_of

HOST = "cdn.localhost"


class _Handler(WSGIRequestHandler):
    """One request of the edge, over a Unix socket."""

    asked: list[str]

    def setup(self) -> None:
        self.client_address = ("unix", 0)
        super().setup()

    def handle(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            return
        environ = self.get_environ()
        self.server.asked.append(environ.get("HTTP_X_CDN_PATH", ""))  # type: ignore[attr-defined]
        handler = ServerHandler(self.rfile, self.wfile, self.get_stderr(), environ, multithread=True)
        handler.request_handler = self  # type: ignore[attr-defined]
        try:
            handler.run(self.server.application)  # type: ignore[attr-defined]
        finally:
            connections.close_all()

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: Any) -> None:
        pass


class Api(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """What answers the edge's questions. `asked`: the paths."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.asked: list[str] = []
        self.application = CdnPath(_nothing)
        self.server_name, self.server_port = "unix", 0
        self.base_environ = {
            "SERVER_NAME": "unix", "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_PORT": "0", "REMOTE_HOST": "",
            "CONTENT_LENGTH": "", "SCRIPT_NAME": "",
        }  # fmt: skip

    def get_environ(self) -> dict[str, str]:
        return self.base_environ


def _nothing(environ: Any, start_response: Any) -> list[bytes]:
    start_response("404 Not Found", [("Content-Length", "0"), ("X-Server", "api")])
    return [b""]


@dataclass
class CdnEdge:
    """Requests to the CDN's host, and what the api was asked for."""

    instance: Instance
    api: Api

    def get(self, target: str, method: str = "GET", host: str = HOST, **headers: str) -> Answer:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        with socket.create_connection(("127.0.0.1", self.instance.port), timeout=120) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            return answer_of(b"".join(iter(lambda: connection.recv(65536), b"")))

    def file(self, url: str, method: str = "GET", **headers: str) -> Answer:
        """What is at an address."""
        return self.get(urlsplit(url).path, method, **headers)


@contextmanager
def open_cdn_edge(given: dict[str, str] | None = None) -> Iterator[CdnEdge]:
    """An edge over the files of the tests' state folder. The database must be one that other threads see."""
    made: list[Api] = []

    def served(instance: Instance, name: str) -> Api:
        server = Api(instance.run_dir / f"{name}.sock")
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        made.append(server)
        return server

    with short_folder() as folder, patch("tests.commands.test_edge.serve", served):
        instance = load_instance(folder / "edge", free_port())
        cdn_folder("live")
        (instance.state / "cdn").symlink_to(Path(settings.STATE) / "cdn")
        shared = {"PLATFORM_SECRET_KEY": settings.SECRET_KEY, "PLATFORM_CDN_URL": f"http://{HOST}"}
        with open_edge(instance, shared | (given or {})):
            yield CdnEdge(instance, made[0])


def stored_file(account: Any, data: bytes, content_type: str, *, is_utf8: bool = False, **fields: Any) -> File:
    """A published file, without variants."""
    found, digest = file_type(content_type), sha256(data).hexdigest()
    file = File.objects.create(
        account=account, filename="any name", size=len(data), sha256=digest, kind=found.kind, footprint=len(data),
        content_type=found.content_type,
        extension=f"{UTF8_PREFIX if is_utf8 else ''}{found.extension}", status=FileStatus.ACTIVE, **fields,
    )  # fmt: skip
    _save(file.pk, data, original_key(file.pk, digest))
    return file


def stored_variant(file: File, name: str, data: bytes, content_type: str = "image/webp") -> Variant:
    digest, index = sha256(data).hexdigest(), file.variants.count()
    _save(file.pk, data, variant_key(file.pk, index, digest))
    return Variant.objects.create(
        file=file, index=index, name=name, width=1, height=1, size=len(data), sha256=digest, content_type=content_type,
        extension=file_type(content_type).extension,
    )  # fmt: skip


def _save(file_id: str, data: bytes, key: str) -> None:
    path = work_folder(file_id) / "bytes"
    path.write_bytes(data)
    store_file().save(path, key)
    remove_work(file_id)


def files_clear() -> None:
    """All files of the CDN in the state folder of the tests."""
    shutil.rmtree(Path(settings.STATE) / "cdn", ignore_errors=True)
