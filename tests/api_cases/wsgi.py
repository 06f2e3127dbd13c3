"""One request to the WSGI application as a server makes it, in this process."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from requests import PreparedRequest

from config.wsgi import application

EVENTS = "text/event-stream"


@dataclass
class WsgiAnswer:
    """As much of Django's response as `tests.described` reads. An event stream is closed unread: it has no end."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def streaming(self) -> bool:
        return self.get("Content-Type").startswith(EVENTS)

    def get(self, name: str, default: str = "") -> str:
        return self.headers.get(name.lower(), default)


def answer_of(request: PreparedRequest) -> WsgiAnswer:
    """Raises what the application raises."""
    begun: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        begun[:] = [int(status[:3]), {name.lower(): value for name, value in headers}]
        return lambda data: None

    body = application(_environ(request), start_response)
    try:
        status, headers = begun
        is_endless = headers.get("content-type", "").startswith(EVENTS)
        return WsgiAnswer(status, headers, b"" if is_endless else b"".join(body))
    finally:
        if hasattr(body, "close"):
            body.close()


def _environ(request: PreparedRequest) -> dict[str, Any]:
    url = urlsplit(str(request.url))
    data = request.body or b""
    data = data if isinstance(data, bytes) else str(data).encode()
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(url.path).decode("latin-1"),
        "QUERY_STRING": url.query,
        "SERVER_NAME": "testserver",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "testserver",
        "CONTENT_LENGTH": str(len(data)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(data),
        "wsgi.errors": BytesIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        key = name.upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            environ[key] = text
        elif key not in ("CONTENT_LENGTH", "HOST", "TRANSFER_ENCODING"):
            environ[f"HTTP_{key}"] = text
    return environ
