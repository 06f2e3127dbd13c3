"""Routes that the route walk leaves out: those without credentials, that of monitoring, and those of the edge.

Who is answered by a route of the edge: the edge alone, whose secret is in its requests. Its own checks are with each
route (`tests/workspaces/network/test_edge.py`, `tests/certificates/test_serving.py`, `tests/pages/test_edge_rules.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from requests import Request as Sent

import edge
from cdn.delivery import file_url
from common.edge_header import edge_secret
from config.metrics_token import metrics_token
from edge.addresses import cdn_address
from edge.certificate_sites import GETTER_USER, getter_secret
from tests.api_cases.wsgi import answer_of
from tests.asgi import Request
from tests.cdn.edge_files import files_clear, stored_file
from tests.credential_kinds import headers_by_kind
from tests.routes import OPEN
from tests.workspaces.rows import make_workspace
from tests.world import World
from workspaces.models import PublicPort

EDGE_PATHS = [
    f"/internal/edge/{name}" for name in ("port", "wake", "certificate", "cdn", "page-headers", "page-redirect")
]


RULES = EDGE_PATHS[-2:]


def forgeries(host: str) -> list[dict[str, str]]:
    right = edge_secret(settings.SECRET_KEY)
    others = ["", "lie", "l\u00fcge", right[:-1], edge_secret("another key"), metrics_token(settings.SECRET_KEY)]
    facts = [f"{word} {host} 192.0.2.1 {word}".strip() for word in others]
    facts += [right, f"{right} {host} 192.0.2.1", f"{host} 192.0.2.1 {right}", f"{right} {host} {right},y"]
    basic = [("edge", ""), (GETTER_USER, "wrong"), ("", getter_secret(settings.SECRET_KEY))]
    return [
        *({"X-Edge": value} for value in facts),
        *({"Authorization": basic_value(*pair)} for pair in basic),
        {"Authorization": f"Bearer {right}"},
    ]


def basic_value(user: str, password: str) -> str:
    return str(Sent("GET", "http://x", auth=(user, password)).prepare().headers["Authorization"])


def asked(path: str, headers: dict[str, str], file: str = "") -> tuple[int, bytes]:
    """By the whole application of the api, with what runs before Django. Without what names the request."""
    given = {"X-Cdn-Path": file, "X-Page-Path": "/x"} | headers
    answer = answer_of(Sent("GET", f"http://testserver{path}?server_name=a.example.org", headers=given).prepare())
    return answer.status_code, answer.content.replace(answer.get("x-request-id", "-").encode(), b"REQUEST")


def test_the_paths_of_the_edge_are_those_that_its_templates_ask() -> None:
    texts = [file.read_text() for file in Path(edge.__path__[0]).glob("*") if file.is_file()]
    found = {path for text in texts for path in re.findall(r"/internal/edge/[a-z-]+", text)}
    assert found == set(EDGE_PATHS)


@pytest.fixture
def host(committed_world: World, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for which the edge itself gets an answer: that of a running workspace's port, or that of the CDN."""
    row = make_workspace(
        committed_world.owner.account, ip="10.200.0.9", public_access=True, published_ports=1, slug="public"
    )
    port = PublicPort.objects.create(workspace=row, port=8080)
    cdn = cdn_address(settings.ENV.cdn_url).host
    yield cdn if request.node.callspec.params["path"].endswith("cdn") else f"{port.hash}.localhost"
    files_clear()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", EDGE_PATHS)
def test_a_route_of_the_edge_does_not_exist_for_others(committed_world: World, host: str, path: str) -> None:
    file = "/" + file_url(stored_file(committed_world.owner.account, b"x", "image/png")).split("/", 3)[3]
    known = asked(path, {}, file)
    assert known[0] == 404
    for headers in (*forgeries(host), *headers_by_kind(committed_world)[0].values()):
        assert asked(path, headers, file) == known, headers
    secret = edge_secret(settings.SECRET_KEY)
    right = {"X-Edge": f"{secret} {host} 192.0.2.1 {secret}"}
    if path.endswith("certificate"):
        right = {"Authorization": basic_value(GETTER_USER, getter_secret(settings.SECRET_KEY))}
    # Rules of pages are asked where there is a release: tests/pages/test_edge_rules.py.
    assert path in RULES or asked(path, right, file)[0] in (200, 204)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", EDGE_PATHS)
def test_nor_in_the_process_of_streams(host: str, path: str) -> None:
    for headers in forgeries(host):
        request = Request(path, headers)
        asyncio.run(request.run())
        assert request.status == 404, request.body


@pytest.mark.django_db
@pytest.mark.parametrize("path", sorted(OPEN))
def test_an_open_route_answers_everybody_alike(committed_world: World, path: str) -> None:
    """Nothing of an account, no cookie, and no error by a credential that is bad."""
    given = [
        *headers_by_kind(committed_world)[0].values(),
        {"X-Client-ID": "cli_unknown", "X-Client-Secret": "wrong"},
        {"Authorization": "Bearer nonsense"},
    ]
    answers = [shown(Client().get(f"/{path}", headers=headers)) for headers in given]
    assert all(answer == answers[0] for answer in answers)
    for secret in (committed_world.owner.account.pk, committed_world.owner.client_id, committed_world.workspace.pk):
        assert secret not in answers[0][2]


@pytest.mark.django_db
def test_metrics_are_shown_by_no_credential_of_an_account(committed_world: World) -> None:
    given = [{"Authorization": "Bearer nonsense"}, *headers_by_kind(committed_world)[0].values()]
    answers = [shown(Client().get("/metrics", headers=headers)) for headers in given]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 401


def shown(answer: Any) -> tuple[int, dict[str, str], str]:
    assert not answer.cookies
    headers = {name: value for name, value in answer.items() if name not in ("X-Request-ID", "Date")}
    return answer.status_code, headers, answer.content.decode().replace(answer.get("X-Request-ID", "-"), "REQUEST")
