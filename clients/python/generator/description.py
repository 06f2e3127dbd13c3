"""The API's description (OpenAPI), as the generator reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from clients.python.generator.table import Method

Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/"


class MissingInDescription(Exception):
    """The table names what the description has not."""


@dataclass(frozen=True)
class Operation:
    """One operation. `query` and `body` are empty where it has none."""

    text: str
    query: list[Schema]
    path_types: list[Schema]
    body: Schema
    body_required: bool
    answer: Schema


class Description:
    """The operations by method and path, and the schemas by name."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.schemas: dict[str, Schema] = document["components"]["schemas"]
        self._operations: dict[tuple[str, str], Schema] = {}
        self._names: dict[str, list[str]] = {}
        for path, item in document["paths"].items():
            shape = re.sub(r"{\w+}", "{}", path)
            self._names[shape] = re.findall(r"{(\w+)}", path)
            self._operations |= {(verb.upper(), shape): item[verb] for verb in item if verb != "parameters"}

    def operation(self, method: Method) -> Operation:
        """Raises MissingInDescription."""
        try:
            found = self._operations[method.verb, method.shape]
        except KeyError:
            raise MissingInDescription(f"{method.verb} {method.path} is not described.") from None
        parameters = found.get("parameters", [])
        request = found.get("requestBody", {})
        return Operation(
            text=found.get("description", ""),
            query=[parameter for parameter in parameters if parameter["in"] == "query"],
            path_types=self._path_types(method),
            body=_json_schema(request),
            body_required=bool(request.get("required")),
            answer=next((_json_schema(found["responses"][code]) for code in found["responses"] if code < "204"), {}),
        )

    def _path_types(self, method: Method) -> list[Schema]:
        """In the order of the path: the description lists parameters by their names."""
        parameters = self._operations[method.verb, method.shape].get("parameters", [])
        found = {parameter["name"]: parameter["schema"] for parameter in parameters if parameter["in"] == "path"}
        return [found[name] for name in self._names[method.shape]]

    def resolved(self, schema: Schema) -> Schema:
        """The schema that a reference names, or itself."""
        while name := reference_of(schema):
            schema = self.schemas[name]
        return schema

    def part(self, schema: Schema, path: str) -> Schema:
        """The schema of a field within an answer, by names with dots between. Raises MissingInDescription."""
        for name in path.split("."):
            properties = self.resolved(schema).get("properties", {})
            if name not in properties:
                raise MissingInDescription(f"The answer has no {path}; it has {sorted(properties)}.")
            schema = properties[name]
        return schema


def reference_of(schema: Schema) -> str:
    """The name of the schema that this one stands for; "" where it is a schema of its own."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    parts = schema.get("allOf", [])
    return reference_of(parts[0]) if len(parts) == 1 else ""


def _json_schema(content_holder: Schema) -> Schema:
    schema: Schema = content_holder.get("content", {}).get("application/json", {}).get("schema", {})
    # Lists are described as arrays of their whole response.
    return schema["items"] if schema.get("type") == "array" and "$ref" in schema["items"] else schema
