"""A WSGI application that responds with what it received; stands for the api behind a real edge."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from config.drain_request_body import DrainRequestBody

LIMIT = 10 * 1024 * 1024


def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length) if length <= LIMIT else b""
    # Most requests are in flight when something dies.
    time.sleep(0.002)
    received = {
        "client": environ.get("HTTP_X_CLIENT_ID", ""),
        "body": body.decode(errors="replace"),
        "headers": {key: value for key, value in environ.items() if key.startswith("HTTP_")},
    }
    content = json.dumps(received).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
    return [content]


application = DrainRequestBody(respond, LIMIT)
