"""TypedDicts of the API's schemas, in one module for each group of methods."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from typing import Any

from clients.python.generator.description import Description, Schema, reference_of
from clients.python.generator.table import MethodGroup

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_HEAD = '"""{text}\n\nWritten by `make client`. Answers may have further fields.\n"""\n\n'


def type_name(schema_name: str) -> str:
    """The name of the schema's class."""
    return schema_name.removesuffix("Object").removeprefix("Paginated")


class Types:
    """Which schema is in which module, and how types are written. Build it with every group before it is read."""

    def __init__(self, description: Description, groups: list[MethodGroup]) -> None:
        self.description = description
        self.module_of: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._requested: set[str] = set()
        self._left_out: dict[str, frozenset[str]] = {}  # fields, by the name of a body's schema
        for group in groups:
            for method in group.methods:
                operation = description.operation(method)
                user = f"{group.name}.{method.name}"
                if method.left_out:
                    self._left_out[reference_of(operation.body)] = method.left_out
                self._add(operation.body, group.name, f"Body, or a part of it, of `{user}`.", requested=True)
                self._add(operation.answer, group.name, f"Answer, or a part of one, of `{user}`.", requested=False)

    def _add(self, schema: Schema, module: str, user: str, *, requested: bool) -> None:
        for name in _references(schema):
            is_new = name not in self.module_of or (requested and name not in self._requested)
            self.module_of.setdefault(name, module)
            self._users.setdefault(name, user)
            if requested:
                self._requested.add(name)
            if is_new:
                self._add(self.description.schemas[name], module, user, requested=requested)

    def is_class(self, name: str) -> bool:
        """Whether the schema is an object with fields; others are written where they are used."""
        return bool(self.description.schemas[name].get("properties"))

    def written(self, schema: Schema, *, requested: bool = False) -> str:
        """The type of a value. Values of requests are enumerated; an answer may have values that are added later."""
        name = reference_of(schema)
        if name:
            inner = self.description.schemas[name]
            return type_name(name) if self.is_class(name) else self.written(inner, requested=requested)
        if "enum" in schema:
            is_closed = requested and None not in schema["enum"]
            return f"Literal[{', '.join(map(repr, schema['enum']))}]" if is_closed else _union(_kinds(schema["enum"]))
        for key in ("oneOf", "anyOf"):
            if key in schema:
                return _union([self.written(part, requested=requested) for part in schema[key]])
        kinds = schema.get("type", [])
        return _union([self._plain(kind, schema, requested) for kind in ([kinds] if isinstance(kinds, str) else kinds)])

    def _plain(self, kind: str, schema: Schema, requested: bool) -> str:
        if kind == "array":
            return f"list[{self.written(schema.get('items', {}), requested=requested)}]"
        if kind == "object":
            return f"dict[str, {self.written(schema.get('additionalProperties') or {}, requested=requested)}]"
        return "float | str" if schema.get("format") == "decimal" else _PLAIN[kind]

    def module(self, group: MethodGroup) -> str:
        """The text of a group's module; "" where all its types are those of groups before it."""
        names = [name for name, module in self.module_of.items() if module == group.name and self.is_class(name)]
        if not names:
            return ""
        classes = "\n\n".join(self._class(name) for name in names)
        head = f"{_HEAD.format(text=group.text)}from __future__ import annotations"
        return f"{head}\n\n{self.imports(classes, group.name)}\n\n{classes}"

    def imports(self, text: str, module: str) -> str:
        """Imports of what a text uses: names of typing, and types of other modules."""
        words = set(re.findall(r"\w+", text))
        typing = [name for name in ("Any", "Literal", "NotRequired", "TypedDict", "Unpack") if name in words]
        lines = [f"from typing import {', '.join(typing)}"] if typing else []
        for name, owner in self.module_of.items():
            if owner != module and self.is_class(name) and type_name(name) in words:
                lines.append(f"from microvm.types.{owner} import {type_name(name)}")
        return "\n".join(lines)

    def _class(self, name: str) -> str:
        schema, is_requested = self.description.schemas[name], name in self._requested
        required = set(schema.get("required", ()))
        fields = {}
        for field, inner in schema["properties"].items():
            if field != "success" and field not in self._left_out.get(name, ()):
                written = self.written(inner, requested=is_requested)
                fields[field] = written if field in required else f"NotRequired[{written}]"
        if any(keyword.iskeyword(field) or not field.isidentifier() for field in fields):
            items = ", ".join(f"{field!r}: {_quoted(written)}" for field, written in fields.items())
            return f'{type_name(name)} = TypedDict("{type_name(name)}", {{{items}}})\n'
        lines = "".join(f"    {field}: {written}\n" for field, written in fields.items())
        return f'class {type_name(name)}(TypedDict):\n    """{self._users[name]}"""\n\n{lines}'


def _quoted(written: str) -> str:
    inner = written.removeprefix("NotRequired[").removesuffix("]") if written.startswith("NotRequired[") else ""
    return f'NotRequired["{inner}"]' if inner else f'"{written}"'


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield reference_of(schema)
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _kinds(values: list[Any]) -> list[str]:
    return [{str: "str", int: "int", float: "float", bool: "bool", type(None): "None"}[type(value)] for value in values]


def _union(parts: list[str]) -> str:
    flat = list(dict.fromkeys(parts))
    return "Any" if not flat or "Any" in flat else " | ".join(flat)
