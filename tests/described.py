"""Each answer of the tests' clients is one that the OpenAPI document has: its status, its Content-Type and its body."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema_rs
from django.test import AsyncClient, Client
from django.urls import Resolver404, resolve

from tests.openapi import document
from tests.route import braced

JSON = "application/json"
REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')


class DescribedClient(Client):
    """Django's client; a request fails whose answer is not described."""

    def request(self, **request: Any) -> Any:
        answer = super().request(**request)
        assert_described(request["REQUEST_METHOD"], request["PATH_INFO"], answer)
        return answer


class DescribedAsyncClient(AsyncClient):
    """The same for routes that are served by ASGI."""

    async def request(self, **request: Any) -> Any:
        answer = await super().request(**request)
        assert_described(request["method"], request["path"], answer)
        return answer


def assert_described(method: str, path: str, answer: Any) -> None:
    """Methods and paths that are not in the document are not looked at: 404, 405, and internal routes."""
    operation = _operation(method, path)
    if operation is None:
        return
    fault = fault_of(operation, answer)
    assert fault is None, f"{method} {path}: {fault}"


@cache
def _route(path: str) -> str | None:
    """The path of the document; None where nothing is routed."""
    try:
        return "/" + braced(resolve(path).route)
    except Resolver404:
        return None


def _operation(method: str, path: str) -> dict[str, Any] | None:
    found = document()["paths"].get(_route(path))
    operation: dict[str, Any] | None = found.get(method.lower()) if found else None
    return operation


def fault_of(operation: dict[str, Any], answer: Any) -> str | None:
    """What the document has not: a sentence, or None."""
    response = operation["responses"].get(str(answer.status_code))
    if response is None:
        return f"{answer.status_code} is not documented: {_shown(answer)}"
    content = _resolved(response).get("content")
    if not content:
        return None if answer.streaming or not answer.content else f"a body is not documented: {_shown(answer)}"
    kind = answer.get("Content-Type", "").partition(";")[0]
    if kind not in content:
        return f"{kind} is not documented with {answer.status_code}"
    if kind != JSON or answer.streaming:
        return None
    return _body_fault(json.dumps(content[kind]["schema"]), answer.content)


def _body_fault(schema: str, body: bytes) -> str | None:
    try:
        _validator(schema).validate(json.loads(body))
    except jsonschema_rs.ValidationError as exc:
        return f"{exc.message[:300]} at {exc.instance_path}"
    return None


@cache
def _validator(schema: str) -> Any:
    whole = {**json.loads(schema), "components": {"schemas": _referred(schema)}}
    return jsonschema_rs.Draft202012Validator(whole)


def _referred(schema: str) -> dict[str, Any]:
    """The components that a schema leads to: with all of them, each validator takes ten times as long to make."""
    found: dict[str, Any] = {}
    left = {*REFERENCE.findall(schema)}
    while left:
        name = left.pop()
        found[name] = document()["components"]["schemas"][name]
        left |= {*REFERENCE.findall(json.dumps(found[name]))} - found.keys()
    return found


def _resolved(response: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in response:
        return response
    found: dict[str, Any] = document()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return found


def _shown(answer: Any) -> str:
    return "a stream" if answer.streaming else answer.content[:300].decode(errors="replace")
