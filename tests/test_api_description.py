"""The OpenAPI document as a whole: every route is in it, and each says what it answers and to whom.

That answers are as it says is shown by tests/api_cases, and by the walk over all routes (tests/described.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver

from common.openapi_errors import declared_codes, error_of, known_errors
from config.api_groups import GROUPS
from tests.credential_kinds import KINDS, headers_by_kind
from tests.openapi import document
from tests.routes import DOCUMENTED
from tests.test_routes import routes_below
from tests.world import World
from workspaces.runtime.openapi import is_alias

# What is for the platform's own processes, for browsers, or for monitoring.
INTERNAL = {
    "healthz",
    "readyz",
    "metrics",
    "openapi.json",
    "docs",
    "internal/edge/port",
    "internal/edge/wake",
    "notifications/browser",
    # Its answers are those of programs in machines.
    "r/proxy/{inner_path}",
    "notifications/browser/{name}",
    "s/{sandbox_id}/terminal/{version}/{name}",
    "^v1/blurs(?:/.*)?$",
}
# Of what a path says beside its resource: by host, too.
UPLOAD = "/cdn/uploads/{token}"
UNSHOWN_METHODS = {("OPTIONS", UPLOAD), ("POST", UPLOAD)}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def test_every_route_is_in_the_document_or_internal() -> None:
    described = {(method, path) for method, path, _ in operations()}
    for pattern, path in routes_below(get_resolver()):
        if path in INTERNAL or path.startswith(("admin/", "internal/")) or is_alias(f"/{path}"):
            continue
        methods = {method.upper() for method in pattern.callback.actions} - {"HEAD"}
        found = {(method, f"/{path}") for method in methods} - UNSHOWN_METHODS
        assert found <= described, path


def test_every_route_of_the_specification_is_in_the_document() -> None:
    described = {f"{method} {re.sub('{[^}]+}', '{}', path)}" for method, path, _ in operations()}
    lines = {re.sub(r":\w+", "{}", line) for line in [*DOCUMENTED, "POST /s/:id/files/list"]}
    streams = {"GET /workspace/{}/logs/stream/boot", "GET /workspace/{}/logs/stream/cmd"}
    assert len(lines) > 100
    assert lines - streams - described == set()
    assert "GET /workspace/{}/logs/stream/{}" in described


def test_the_groups_are_those_of_the_specification_in_its_order() -> None:
    assert [tag["name"] for tag in document()["tags"]] == [group.name for group in GROUPS]
    used = [operation["tags"][0] for _, _, operation in operations()]
    assert list(dict.fromkeys(used)) == [group.name for group in GROUPS]


def test_every_refusal_names_a_code_that_exists() -> None:
    named = {code for _, code in known_errors()}
    for method, path, operation in operations():
        if path.startswith("/v1/"):
            continue
        for status, response in operation["responses"].items():
            if status >= "4" and "$ref" not in response:
                codes = declared_codes(response["description"])
                assert [code for code in codes if error_of(int(status), code)], (method, path, status)
                assert {code for code in codes if code.isupper()} <= named


def test_every_operation_has_examples_of_its_errors() -> None:
    shown = document()["components"]
    for method, path, operation in operations():
        for status, response in operation["responses"].items():
            if "$ref" in response:
                response = shown["responses"][response["$ref"].rpartition("/")[2]]
            if status >= "4":
                assert response["content"]["application/json"]["examples"], (method, path, status)


def test_an_example_of_an_error_is_what_its_exception_makes() -> None:
    example = document()["components"]["examples"]["slug_taken_409"]["value"]
    assert example["code"] == example["error"] == "slug_taken"
    assert example["message"] == "Another workspace of this account has this slug."


def test_scopes_and_limits_are_shown() -> None:
    paths = document()["paths"]
    create, send = paths["/workspace"]["post"], paths["/notifications/send"]["post"]
    assert create["x-scopes"] == ["account", "namespace"]
    assert "of scope account or namespace" in create["description"]
    assert send["x-limits"]["rates"] == [{"name": "notifications-send", "requests": 60, "seconds": 60}]
    assert paths["/s/{sandbox_id}/files/upload"]["post"]["x-limits"]["body_bytes"] > 64 << 20


@pytest.mark.django_db
@pytest.mark.parametrize("kind", KINDS)
def test_a_credential_of_another_kind_is_refused_by_every_route(world: World, kind: str) -> None:
    """All kinds at all routes, those of sandboxes, send tokens and API keys included."""
    before, client, (given, ids) = world.stored(), Client(), headers_by_kind(world)
    for method, path, operation in operations():
        accepted = {name for option in operation.get("security", []) for name in option}
        if not accepted or kind in accepted:
            continue
        answer = client.generic(method, path.format(**ids), "{}", content_type="application/json", headers=given[kind])
        assert answer.status_code in (401, 403), (method, path, answer.content)
    assert world.stored() == before
