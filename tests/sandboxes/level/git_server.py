"""A git server over HTTP that wants a name and a password: git's own backend behind Python's."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class GitServer(ThreadingHTTPServer):
    """Serves the repositories of a folder. `asked`: of each request the path, and what it had as Authorization.

    `redirect`: an address that every request is sent to. `refusal`: the text of its 401. `listener`: a socket that
    listens already, in place of one of this host's loopback.
    """

    daemon_threads = True

    def __init__(self, folder: Path, username: str, password: str, listener: socket.socket | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket = listener
            self.server_address = listener.getsockname()
        self.folder = folder
        self.wanted = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
        self.asked: list[tuple[str, str | None]] = []
        self.redirect: str | None = None
        self.refusal = b"no"

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_address[1]}"

    def presented(self) -> set[str | None]:
        """What was presented as credentials."""
        return {authorization for _, authorization in self.asked}


@contextmanager
def running(server: GitServer) -> Iterator[GitServer]:
    """The server, until the end of the block."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _serve(self, body: bytes) -> None:
        authorization = self.headers.get("Authorization")
        self.server.asked.append((self.path, authorization))
        if self.server.redirect is not None:
            self._reply(302, {"Location": self.server.redirect + self.path}, b"")
        elif authorization != self.server.wanted:
            headers = {"WWW-Authenticate": 'Basic realm="x"', "Content-Type": "text/plain"}
            self._reply(401, headers, self.server.refusal)
        else:
            self._run_backend(body)

    def _run_backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "x",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "CONTENT_LENGTH": str(len(body)),
        }
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=environment, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self._reply(int(headers.pop("Status", "200").split()[0]), headers, content)

    def _reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return
