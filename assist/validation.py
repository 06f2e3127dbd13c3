"""Validation of a model's text: it is parsed, reduced to the documented fields, and validated. Nothing is coerced."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema

# Models put JSON into Markdown if no format forces them to write JSON alone.
_FENCE = "```"
_LANGUAGES = ("", "json")
# Validating very many items would hold up the event loop.
MAX_ITEMS = 100


class InvalidAnswer(Exception):
    """Answer that is not valid. `reason` is for the model's next try; it holds names of the schema and nothing that the
    model has said.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def answer_fields(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the schema, each with the type that the schema says. Raise InvalidAnswer."""
    value = _known_fields(_parsed(text), schema)
    found = next(iter(jsonschema.Draft202012Validator(schema).iter_errors(value)), None)
    if found is not None:
        raise InvalidAnswer(_reason(found))
    checked: dict[str, Any] = value
    return checked


def _parsed(text: str) -> Any:
    try:
        value = json.loads(_without_fence(text.strip()), parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is not text
    except (ValueError, RecursionError):
        raise InvalidAnswer("the answer is not one JSON object") from None
    return value


def _without_fence(text: str) -> str:
    """Return the text between the lines of the fence.

    Each character is looked at once. Any user can make the model write any text, and a regular expression that
    backtracks over it would hold up the event loop for minutes.
    """
    first, _, rest = text.partition("\n")
    if not first.startswith(_FENCE) or first[len(_FENCE) :].strip().lower() not in _LANGUAGES:
        return text
    return rest.removesuffix(_FENCE) if rest.endswith(_FENCE) else text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _known_fields(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return the value without the fields that are not in the schema. Values of a wrong type stay for the
    validation.
    """
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return {name: _known_fields(value[name], known[name]) for name in known if name in value}
    if isinstance(value, list) and "items" in schema:
        if len(value) > MAX_ITEMS:
            raise InvalidAnswer(f"an array has more than {MAX_ITEMS} items")
        return [_known_fields(item, schema["items"]) for item in value]
    return value


def _reason(found: jsonschema.ValidationError) -> str:
    place = ".".join(str(part) for part in found.absolute_path) or "the object"
    if found.validator == "required":
        missing = [name for name in found.validator_value if name not in found.instance]
        return f"{place} lacks the fields {', '.join(missing)}"
    return f"{place} must have the type {found.validator_value}"
