"""Google as firebase-admin sees it, on this host: the OAuth endpoint, and FCM's HTTP v1.

The beginning of a registration token, up to the first `-`, says how FCM answers; anything unknown is taken.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from requests import PreparedRequest, Response

from notifications.providers.bounded_answers import BoundedAdapter

PROJECT = "of-the-tests"
ACCESS_TOKEN = "access-token-of-the-tests"
# Status, `status` of the error, errorCode of FCM's detail.
REFUSALS = {
    "unregistered": (404, "NOT_FOUND", "UNREGISTERED"),
    "thirdparty": (401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR"),
    "quota": (429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"),
    "mismatch": (403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"),
    "invalid": (400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "unavailable": (503, "UNAVAILABLE", "UNAVAILABLE"),
    "failing": (500, "INTERNAL", "INTERNAL"),
}


class Google:
    """`arrived`: messages by registration token. `logins`: how often a token was fetched."""

    def __init__(self) -> None:
        self.arrived: dict[str, list[dict[str, Any]]] = {}
        self.requests: Counter[str] = Counter()
        self.logins = 0
        self.login_status = 200
        self.retry_after: str | None = None
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._server = _server(self)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def write_credentials(self, path: Path) -> Path:
        """The file of a service account whose logins come here."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        found = {"type": "service_account", "project_id": PROJECT, "private_key_id": "k1", "private_key": text}
        found |= {"client_email": f"push@{PROJECT}.iam.example", "client_id": "1", "token_uri": f"{self.origin}/token"}
        path.write_text(json.dumps(found))
        return path

    def answer(self, path: str, authorization: str, body: bytes) -> tuple[int, bytes]:
        """0: no answer."""
        if path == "/token":
            return self._login()
        if path != f"/v1/projects/{PROJECT}/messages:send" or authorization != f"Bearer {ACCESS_TOKEN}":
            return 401, b"{}"
        message = json.loads(body)["message"]
        token = message["token"]
        kind = token.partition("-")[0]
        with self._lock:
            self.requests[kind] += 1
        if kind == "silent":
            self.released.wait(60)
            return 0, b""
        if kind in REFUSALS:
            return _refusal(*REFUSALS[kind])
        with self._lock:
            self.arrived.setdefault(token, []).append(message)
        return 200, {"broken": b'{"name": ', "strange": b"[]"}.get(kind, b'{"name": "projects/p/messages/1"}')

    def _login(self) -> tuple[int, bytes]:
        with self._lock:
            self.logins += 1
        if self.login_status != 200:
            return self.login_status, b'{"error": "invalid_grant", "error_description": "no such account"}'
        answer = {"access_token": ACCESS_TOKEN, "expires_in": 3600, "token_type": "Bearer"}
        return 200, json.dumps(answer).encode()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


def _refusal(status: int, name: str, code: str) -> tuple[int, bytes]:
    detail = {"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}
    error = {"code": status, "message": "as the tests want it", "status": name, "details": [detail]}
    return status, json.dumps({"error": error}).encode()


@contextmanager
def google() -> Iterator[Google]:
    made = Google()
    try:
        yield made
    finally:
        made.close()


def loopback_adapter(origin: str) -> type[BoundedAdapter]:
    """In place of the adapter to FCM: the same requests with the same retries, to this host."""

    class Loopback(BoundedAdapter):
        def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
            assert request.url
            request.url = request.url.replace("https://fcm.googleapis.com", origin)
            return super().send(request, *args, **kwargs)

    return Loopback


def _server(server: Google) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = server.answer(self.path, self.headers.get("Authorization", ""), body)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            if server.retry_after is not None and status in (429, 503):
                self.send_header("Retry-After", server.retry_after)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            """A sender that ended its attempt."""

    return Server(("127.0.0.1", 0), Handler)
