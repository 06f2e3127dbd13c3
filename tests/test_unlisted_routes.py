"""Routes that the route walk leaves out: those without credentials, that of monitoring, and those of the edge.

Who is answered by a route of the edge: the edge alone, whose secret is in its requests. Its own checks are with each
route (`tests/workspaces/network/test_edge.py`, `tests/certificates/test_serving.py`, `tests/pages/test_edge_rules.py`).
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from requests import Request as Sent

import edge
from common.edge_header import edge_secret
from config.metrics_token import metrics_token
from edge.certificate_sites import GETTER_USER, getter_secret
from tests.api_cases.wsgi import answer_of
from tests.asgi import Request
from tests.credential_kinds import headers_by_kind
from tests.routes import OPEN
from tests.world import World

EDGE_PATHS = [
    f"/internal/edge/{name}" for name in ("port", "wake", "certificate", "cdn", "page-headers", "page-redirect")
]
# What a request of the edge says beside its secret.
ASKED = {"X-Cdn-Path": "/f/file_x/0.png", "X-Page-Path": "/x"}


def forgeries() -> list[dict[str, str]]:
    right = edge_secret(settings.SECRET_KEY)
    others = ["", "lie", "l\u00fcge", right[:-1], edge_secret("another key"), metrics_token(settings.SECRET_KEY)]
    facts = [f"{word} a.localhost 192.0.2.1 {word}".strip() for word in others]
    facts += [right, f"{right} a.localhost 192.0.2.1", f"a.localhost 192.0.2.1 {right}", f"{right} x {right},y"]
    basic = [("edge", ""), (GETTER_USER, "wrong"), ("", getter_secret(settings.SECRET_KEY))]
    return [
        *({"X-Edge": value} for value in facts),
        *({"Authorization": Sent("GET", "http://x", auth=pair).prepare().headers["Authorization"]} for pair in basic),
        {"Authorization": f"Bearer {right}"},
    ]


def asked(path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """By the whole application of the api, with what runs before Django. Without what names the request."""
    request = Sent("GET", f"http://testserver{path}?server_name=a.example.org", headers=ASKED | headers).prepare()
    answer = answer_of(request)
    return answer.status_code, answer.content.replace(answer.get("x-request-id", "-").encode(), b"REQUEST")


def test_the_paths_of_the_edge_are_those_that_its_templates_ask() -> None:
    texts = [file.read_text() for file in Path(edge.__path__[0]).glob("*") if file.is_file()]
    found = {path for text in texts for path in re.findall(r"/internal/edge/[a-z-]+", text)}
    assert found == set(EDGE_PATHS)


@pytest.mark.django_db(transaction=True)
@pytest.mark.one_database
@pytest.mark.parametrize("path", EDGE_PATHS)
def test_a_route_of_the_edge_does_not_exist_for_others(world: World, path: str) -> None:
    credentials = headers_by_kind(world)[0].values()
    known = asked(path, {})
    assert known[0] == 404
    for headers in (*forgeries(), *credentials, {"Authorization": f"Bearer {metrics_token(settings.SECRET_KEY)}"}):
        assert asked(path, headers) == known, headers


@pytest.mark.django_db(transaction=True)
@pytest.mark.one_database
@pytest.mark.parametrize("path", EDGE_PATHS)
def test_nor_in_the_process_of_streams(path: str) -> None:
    for headers in forgeries():
        request = Request(path, headers)
        asyncio.run(request.run())
        assert request.status == 404, request.body


@pytest.mark.django_db
@pytest.mark.parametrize("path", sorted(OPEN))
def test_an_open_route_answers_everybody_alike(world: World, path: str) -> None:
    """Nothing of an account, no cookie, and no error by a credential that is bad."""
    given = [*headers_by_kind(world)[0].values(), {"X-Client-ID": "cli_unknown", "X-Client-Secret": "wrong"}, {"Authorization": "Bearer nonsense"}]
    answers = [shown(Client().get(f"/{path}", headers=headers)) for headers in given]
    assert all(answer == answers[0] for answer in answers)
    for secret in (world.owner.account.pk, world.owner.client_id, world.workspace.pk):
        assert secret not in answers[0][2]


@pytest.mark.django_db
def test_metrics_are_shown_by_no_credential_of_an_account(world: World) -> None:
    given = [{"Authorization": "Bearer nonsense"}, *headers_by_kind(world)[0].values()]
    answers = [shown(Client().get("/metrics", headers=headers)) for headers in given]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 401


def shown(answer: Any) -> tuple[int, dict[str, str], str]:
    assert not answer.cookies
    headers = {name: value for name, value in answer.items() if name not in ("X-Request-ID", "Date")}
    return answer.status_code, headers, answer.content.decode().replace(answer.get("X-Request-ID", "-"), "REQUEST")
