"""The OpenAPI document, for tests that follow it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator

from tests.route import Route


@cache
def document() -> dict[str, Any]:
    """The document of the whole platform. Making it takes a second or two."""
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made


def body_fields(route: Route) -> list[tuple[str, ...]]:
    """The fields of a route's JSON body, and of the objects in it: paths of names."""
    operation = document()["paths"][f"/{route.path}"][route.method.lower()]
    content = operation.get("requestBody", {}).get("content", {})
    return sorted(set(_fields(content.get("application/json", {}).get("schema", {}))))


def _fields(schema: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for part in [*schema.get("allOf", ()), *schema.get("oneOf", ()), *schema.get("anyOf", ())]:
        yield from _fields(part, before)
    for name, inner in schema.get("properties", {}).items():
        yield (*before, name)
        yield from _fields(inner, (*before, name))
