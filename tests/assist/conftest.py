"""A model of the test's own, an API key, and a client of the routes as the process `streams` serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import LazySettings

from assist.services import NewApiKey, api_key_create
from tests.asgi import Request
from tests.assist.model_server import ModelServer, serving_model
from tests.callers import Caller
from tests.webhooks.conftest import hooks, receiver

__all__ = ["hooks", "receiver"]  # fixtures of webhooks, for tests of what calls send

BODIES: dict[str, dict[str, Any]] = {
    "generate": {"prompt": "print one", "language": "python"},
    "debug": {"code": "print(1", "error": "SyntaxError"},
    "optimize": {"code": "for x in y: z(x)", "type": "performance"},
}


def configured(settings: LazySettings, **changes: Any) -> None:
    settings.ENV = settings.ENV.model_copy(update=changes)


@pytest.fixture
def model(settings: LazySettings) -> Iterator[ModelServer]:
    with serving_model() as made:
        configured(
            settings,
            assist_url=made.url,
            assist_model="the-model",
            assist_key="sk-planted-model-key",
            assist_seconds=5.0,
            assist_connect_seconds=1.0,
            assist_calls_per_minute=10_000,
        )
        yield made


@pytest.fixture
def key(api: Caller) -> NewApiKey:
    return api_key_create(account=api.account, name="first", namespace=None, actor="test")


def request_of(key: NewApiKey | str, route: str = "generate", body: Any = None, **headers: str) -> Request:
    """A call as the server gets it."""
    secret = key if isinstance(key, str) else key.key
    sent = BODIES[route] if body is None else body
    return Request(f"/v1/blurs/{route}", {"Authorization": f"Bearer {secret}", **headers}, "POST", sent)


def called(key: NewApiKey | str, route: str = "generate", body: Any = None, **headers: str) -> Request:
    """The same, answered."""
    return run(request_of(key, route, body, **headers))[0]


def run(*requests: Request, seconds: float = 120) -> tuple[Request, ...]:
    """Serve requests at once, to their ends."""

    async def serve() -> None:
        await asyncio.wait_for(asyncio.gather(*(request.run() for request in requests)), seconds)

    asyncio.run(serve())
    return requests


def assert_refused(request: Request, status: int, code: str) -> dict[str, Any]:
    """The error, which has the form of these routes and nothing else; rate headers come with it."""
    assert (request.status, request.json()["error"]["code"]) == (status, code), request.body
    assert set(request.json()) == {"error"}
    assert set(request.json()["error"]) == {"code", "message", "details"}
    assert_limits(request)
    error: dict[str, Any] = request.json()["error"]
    return error


def assert_limits(request: Request) -> None:
    headers = {name.lower(): value for name, value in request.headers.items()}
    for name in ("limit", "remaining", "reset"):
        assert headers[f"x-ratelimit-{name}"].isdecimal()
    assert headers["ratelimit-policy"].startswith('"day";q=')
    assert headers["ratelimit"].startswith('"day";r=')


def header(request: Request, name: str) -> str:
    return {key.lower(): value for key, value in request.headers.items()}[name.lower()]
