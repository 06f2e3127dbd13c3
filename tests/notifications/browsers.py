"""Browsers that have subscribed, and the push service that takes what is sent to them: it decrypts as they would.

The path of an endpoint says how the service answers: /201/name, /404/name, /410/name, /413/name, /429/name, /500/name,
/silent/name, /slow/name (201 after 50 ms). What it takes is checked: encryption, signature, audience, expiry.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import http_ece
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

DAY = 24 * 3600


def base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(frozen=True)
class Subscriber:
    """One browser's subscription, with the private key that no server sees."""

    endpoint: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = field(default_factory=lambda: os.urandom(16))

    @property
    def name(self) -> str:
        return self.endpoint.rpartition("/")[2]

    @property
    def p256dh(self) -> str:
        return base64url(self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))

    @property
    def address(self) -> dict[str, Any]:
        return {"endpoint": self.endpoint, "p256dh": self.p256dh, "auth": base64url(self.auth)}

    @property
    def subscription(self) -> dict[str, Any]:
        """As `PushSubscription.toJSON()` gives it."""
        keys = {"p256dh": self.p256dh, "auth": base64url(self.auth)}
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys}


def verified_claims(authorization: str) -> tuple[dict[str, Any], str]:
    """The claims of a VAPID header (RFC 8292) and the key that signed them. Raises InvalidSignature, ValueError."""
    scheme, _, rest = authorization.partition(" ")
    if scheme != "vapid":
        raise ValueError(scheme)
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    signed, _, signature = parts["t"].rpartition(".")
    raw = from_base64url(signature)
    pair = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), from_base64url(parts["k"]))
    public.verify(pair, signed.encode(), ec.ECDSA(hashes.SHA256()))
    header, claims = (json.loads(from_base64url(part)) for part in signed.split("."))
    if header["alg"] != "ES256":
        raise ValueError(header)
    return dict(claims), parts["k"]


class PushService:
    """`arrived`: the clear text by name of the subscriber. `problems`: what a push service would refuse."""

    def __init__(self, port: int = 0) -> None:
        self.subscribers: dict[str, Subscriber] = {}
        self.arrived: dict[str, list[dict[str, Any]]] = {}
        self.requests: Counter[str] = Counter()
        self.problems: list[str] = []
        self.keys: set[str] = set()
        self.retry_after: str | None = None
        self.silent_seconds = 30.0
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._server = _server(self, port)
        self.port = self._server.server_port
        self.origin = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def subscriber(self, name: str, answer: str = "201") -> Subscriber:
        """A browser whose endpoint answers so."""
        made = self.subscribers[name] = Subscriber(f"{self.origin}/{answer}/{name}")
        return made

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> int:
        _, how, name = path.split("/")
        with self._lock:
            self.requests[how] += 1
        if how == "silent":
            self.released.wait(self.silent_seconds)
            return 0
        if how == "slow":
            time.sleep(0.05)
        problem = self._problem(headers)
        status = 201 if how == "slow" else int(how)
        with self._lock:
            if problem:
                self.problems.append(problem)
            elif status < 300:
                # First: the body of a sender that was killed is cut off, and cannot be decrypted.
                clear = self._clear(name, body)
                self.arrived.setdefault(name, []).append(clear)
        return status

    def _clear(self, name: str, body: bytes) -> dict[str, Any]:
        found = self.subscribers[name]
        clear = http_ece.decrypt(body, private_key=found.key, auth_secret=found.auth, version="aes128gcm")
        return dict(json.loads(clear))

    def _problem(self, headers: dict[str, str]) -> str:
        try:
            claims, key = verified_claims(headers["authorization"])
        except (InvalidSignature, ValueError, KeyError) as error:
            return f"signature: {error!r}"
        self.keys.add(key)
        left = claims["exp"] - time.time()
        wanted = (self.origin, "aes128gcm", True, True)
        found = (claims["aud"], headers["content-encoding"], 0 < left <= DAY, int(headers["ttl"]) > 0)
        return "" if found == wanted and claims["sub"].startswith(("mailto:", "https:")) else f"{found} {claims}"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def push_service(port: int = 0) -> Iterator[PushService]:
    made = PushService(port)
    try:
        yield made
    finally:
        made.close()


def _server(service: PushService, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = service.answer(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if service.retry_after is not None:
                self.send_header("Retry-After", service.retry_after)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            """A sender that ended its attempt."""

    return Server(("127.0.0.1", port), Handler)
