"""Parameters of a Content-Type have no effect, through the applications as the servers call them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.test import RequestFactory

from config.content_type import plain_content_type
from tests.asgi import Request
from tests.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)
JSON = "application/json"
KINDS = [
    f"{JSON}; charset=base64",
    f"{JSON}; charset=utf-16",
    f"{JSON}; charset=idna",
    f"{JSON}; charset*=nothing''x",
    f"{JSON}; a*=nothing''x",
    f'{JSON};;;=";',
]
QUERIES = ["page=1&a=%41%ff", "a=1&" * 1100]


@pytest.mark.parametrize("query", QUERIES, ids=["few", "many"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_of_the_api_is_answered_in_the_one_form(api: Caller, kind: str, query: str) -> None:
    from config.wsgi import application

    sent = RequestFactory(headers=api.headers).generic("GET", f"/workspace?{query}", content_type=kind)
    started: list[Any] = []
    body = b"".join(application({**sent.environ, "CONTENT_TYPE": kind}, lambda *args: started.append(args)))  # type: ignore[arg-type]
    assert started[0][0].split()[0] == ("200" if "page" in query else "400")
    assert json.loads(body)["success"] is ("page" in query)


@pytest.mark.parametrize("query", QUERIES, ids=["few", "many"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_of_streams_is_answered_in_the_one_form(api: Caller, kind: str, query: str) -> None:
    request = Request("/workspace/none/overlay", {**api.headers, "Content-Type": kind})
    request.scope["query_string"] = query.encode()
    asyncio.run(asyncio.wait_for(request.run(), 20))
    assert request.status in (400, 404)
    assert request.json()["success"] is False


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("", ""),
        ("Application/JSON", "Application/JSON"),
        ("multipart/form-data; charset=base64; boundary=a-b", 'multipart/form-data; boundary="a-b"'),
        ('multipart/form-data;boundary="a b"; x=y', 'multipart/form-data; boundary="a b"'),
        ("multipart/form-data; boundary", "multipart/form-data"),
        ("a/b; xboundary=c", "a/b"),
    ],
)
def test_only_the_boundary_of_a_form_is_kept(sent: str, kept: str) -> None:
    assert plain_content_type(sent) == kept
