"""A client of the API with credentials, as tests use it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.test import Client

from accounts.models import Account
from common.edge_header import edge_secret


def edge_header(forwarded: str, host: str = "localhost") -> str:
    """The value of the edge's header for a request that came by these addresses."""
    secret = edge_secret(settings.SECRET_KEY)
    return f"{secret} {host} {forwarded} {secret}"


@dataclass
class Caller:
    """Sends JSON with its credentials; returns Django test responses with `.json()`."""

    client: Client
    account: Account
    client_id: str
    secret: str

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Client-ID": self.client_id, "X-Client-Secret": self.secret}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = body if isinstance(body, str | bytes) else json.dumps(body) if body is not None else ""
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.client.generic(method, path, data, content_type="application/json", headers=sent)

    def get(self, path: str, **headers: str) -> Any:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.send("POST", path, body, **headers)

    def put(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.send("PUT", path, body, **headers)

    def delete(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.send("DELETE", path, body, **headers)
