"""Errors in the OpenAPI document: what every route may answer beside what it declares, and an example of each code.

A route declares its own refusals by `common.openapi.refused`: codes in backticks, with what they mean there. The
example of a code is the body that its exception class makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from common import errors
from common.responses import error_body

ERROR_SCHEMA = {
    "type": "object",
    "required": ["success", "error", "code", "message", "request_id"],
    "properties": {
        "success": {"type": "boolean", "const": False},
        "error": {"type": "string", "description": "Machine readable; the same as `code`, except for 401 and 403."},
        "code": {"type": "string"},
        "message": {"type": "string", "description": "Human-readable."},
        "details": {"type": "object", "description": "For a validation error: each field with its list of messages."},
        "request_id": {"type": "string"},
    },
    "additionalProperties": False,
}
JSON = "application/json"
REQUEST_ID = "5f0c1e7a9b3d4826"
_REFERENCE = {"$ref": "#/components/schemas/Error"}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
_CODE = re.compile(r"`([A-Za-z_]+)`")

Operation = dict[str, Any]


@dataclass(frozen=True)
class Common:
    """An error that routes answer without declaring it.

    `where`: (operation, names of its parameters and of its body's fields) -> whether the operation may answer it.
    """

    name: str
    text: str
    codes: tuple[type[errors.DomainError], ...]
    where: Callable[[Operation, set[str]], bool] = lambda operation, names: True


def credentials_of(operation: Operation) -> set[str]:
    """Return the names of the security schemes of which one is enough or several are needed."""
    return {name for option in operation.get("security", []) for name in option}


# Placeholders, and fields that name a thing beside them.
ADDRESSED = "{"
REFERENCES = {ADDRESSED, "namespace", "workspace_id", "workspaceId"}
COMMON: dict[int, Common] = {
    400: Common("Invalid", "The request is malformed.", (errors.ValidationError, errors.InvalidJson)),
    401: Common(
        "Unauthorized",
        "The credential is missing, wrong or expired.",
        (errors.Unauthorized,),
        lambda operation, names: bool(credentials_of(operation)),
    ),
    402: Common(
        "Spent",
        "The quota of the namespace stops its machines.",
        (errors.QuotaExceeded,),
        lambda operation, names: bool(credentials_of(operation) & {"runtimeToken", "sandboxToken"}),
    ),
    403: Common(
        "Forbidden",
        "The credential's scope or kind does not allow this, or its namespace is suspended.",
        (errors.Forbidden, errors.NamespaceSuspended),
        lambda operation, names: bool(credentials_of(operation) - {"sendToken", "uploadToken"}),
    ),
    404: Common(
        "NotFound",
        "There is no such resource, or the credential does not reach it.",
        (errors.NotFound,),
        lambda operation, names: bool(names & REFERENCES),
    ),
    413: Common("TooLarge", "The body is larger than the route accepts.", (errors.PayloadTooLarge,)),
    415: Common(
        "MediaType",
        "The route does not accept the body's Content-Type.",
        (errors.UnsupportedMediaType,),
        lambda operation, names: "requestBody" in operation,
    ),
    429: Common(
        "TooMany",
        "Too many requests at once, or too many wrong credentials from the caller's address.",
        (errors.RateLimited,),
    ),
    500: Common("Failed", "A fault of the platform; its log has the request's id.", (errors.DomainError,)),
    503: Common(
        "Unavailable",
        "The database, Redis or the host of the machine cannot be reached.",
        (errors.VMUnavailable,),
    ),
}


def add_errors(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Postprocessing hook: each operation has each status that it may answer, with an example for each code."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {})["Error"] = ERROR_SCHEMA
    components["responses"] = {common.name: _common_response(status, common) for status, common in COMMON.items()}
    for path, operations in result["paths"].items():
        for operation in operations.values():
            _describe(operation, _names(path, operation, components["schemas"]))
    components["examples"] = {name: {"value": value} for name, value in sorted(_used(result))}
    return result


def _names(path: str, operation: Operation, schemas: dict[str, Any]) -> set[str]:
    """Return the names of the parameters and of the body's fields, and `ADDRESSED` if the path has a placeholder."""
    body = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema", {})
    parts = [body, *body.get("oneOf", ()), *body.get("allOf", ())]
    found = [schemas.get(part.get("$ref", "").rpartition("/")[2], part) for part in parts]
    fields = {name for part in found for name in part.get("properties", ())}
    return (
        fields
        | {each["name"] for each in operation.get("parameters", ())}
        | set(ADDRESSED if ADDRESSED in path else "")
    )


def _describe(operation: Operation, names: set[str]) -> None:
    responses = operation["responses"]
    for status, common in COMMON.items():
        if common.where(operation, names):
            responses.setdefault(str(status), {"$ref": f"#/components/responses/{common.name}"})
    for status, response in responses.items():
        if int(status) >= 400 and _is_plain_error(response):
            _add_examples(int(status), response)
    # Generated clients take the first success for the answer, so these keep their order.
    operation["responses"] = dict(sorted(responses.items(), key=lambda item: item[0] if item[0] >= "4" else ""))


def _is_plain_error(response: dict[str, Any]) -> bool:
    """Return whether the route declares the error, in the common form of errors."""
    schema = response.get("content", {}).get(JSON, {}).get("schema", _REFERENCE)
    return "$ref" not in response and schema == _REFERENCE


def _add_examples(status: int, response: dict[str, Any]) -> None:
    """Add examples for the codes that the description names, and for those that every route has with this status."""
    common = COMMON[status].codes if status in COMMON else ()
    named = [found for code in declared_codes(response["description"]) if (found := error_of(status, code))]
    response["content"] = _content(status, dict.fromkeys([*named, *common]))
    if status == 429:
        response["headers"] = _RETRY_AFTER


def _common_response(status: int, common: Common) -> dict[str, Any]:
    headers = {"headers": _RETRY_AFTER} if status == 429 else {}
    return {"description": common.text, "content": _content(status, common.codes), **headers}


def _content(status: int, kinds: Iterable[type[errors.DomainError]]) -> dict[str, Any]:
    examples = {kind.code: {"$ref": f"#/components/examples/{_name(status, kind)}"} for kind in kinds}
    return {JSON: {"schema": _REFERENCE, "examples": examples} if examples else {"schema": _REFERENCE}}


def _name(status: int, kind: type[errors.DomainError]) -> str:
    return f"{kind.code}_{status}"


def _used(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the examples that the document refers to."""
    responses = [*result["components"]["responses"].values()]
    for operations in result["paths"].values():
        responses += [response for operation in operations.values() for response in operation["responses"].values()]
    names = {
        reference["$ref"].rpartition("/")[2]
        for response in responses
        for reference in response.get("content", {}).get(JSON, {}).get("examples", {}).values()
        if "$ref" in reference
    }
    for (status, _), kind in known_errors().items():
        if _name(status, kind) in names:
            yield _name(status, kind), example_body(kind)


def example_body(kind: type[errors.DomainError]) -> dict[str, Any]:
    """Return the body of an error of this class, with its own sentence and example details."""
    return {**error_body(kind(details=kind.example_details)), "request_id": REQUEST_ID}


def declared_codes(text: str) -> list[str]:
    """Return the texts in backticks of a description of refusals: codes, and names of fields."""
    return _CODE.findall(text)


def error_of(status: int, code: str) -> type[errors.DomainError] | None:
    """Return the exception class of a code, or None if no exception has it with this status."""
    return known_errors().get((status, code))


@cache
def known_errors() -> dict[tuple[int, str], type[errors.DomainError]]:
    """Return the most general class by status and code, of the modules that are loaded: those of all routes are."""
    found: dict[tuple[int, str], type[errors.DomainError]] = {}
    level: list[type[errors.DomainError]] = [errors.DomainError]
    while level:
        for kind in level:
            found.setdefault((kind.status, kind.code), kind)
        level = [deeper for kind in level for deeper in kind.__subclasses__()]
    return found
