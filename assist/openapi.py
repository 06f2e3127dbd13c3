"""How the OpenAPI document describes the answers of code assistance, whose errors have a form of their own."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiResponse
from rest_framework.serializers import Serializer

from assist.error_form import PREFIX
from assist.errors import FAILED, KEY, QUOTA, RATE, REQUEST

ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {
                "code": {"type": "string", "enum": [KEY, RATE, REQUEST, FAILED, QUOTA]},
                "message": {"type": "string", "description": "Human-readable."},
                "details": {"type": "object", "description": "For a field that is not valid: its messages."},
            },
        }
    },
}
_REFERENCE = {"$ref": "#/components/schemas/AssistError"}
_CODES = {
    400: f"`{REQUEST}`: broken JSON, a missing field, a wrong type, a `webhook_url` that is never called",
    401: f"`{KEY}`",
    402: f"`{QUOTA}`: the namespace has no credits left; `details` has its figures",
    403: f"`{REQUEST}`: the namespace of the key is suspended",
    404: f"`{REQUEST}`: no such route",
    405: f"`{REQUEST}`: another method than POST",
    413: f"`{REQUEST}`: a body above 1 MiB",
    429: f"`{RATE}`: too many calls in a minute, or the model has as many questions as it can take; `{QUOTA}`: the "
    "calls of the day are used up. `Retry-After` says when to try again",
    502: f"`{FAILED}`: the model cannot be reached, took too long, or gave no valid answer twice; the call does not "
    "count",
    503: f"`{FAILED}`: the platform cannot store anything at the moment",
}
_HEADERS = {
    "X-RateLimit-Limit": ("integer", "Calls of the account a day."),
    "X-RateLimit-Remaining": ("integer", "How many are left."),
    "X-RateLimit-Reset": ("integer", "When the day ends, in seconds since the epoch."),
    "RateLimit-Policy": ("string", "The same limits, and that of a minute, as the draft of the IETF has them."),
    "RateLimit": ("string", "What is left of them."),
}


def documented_responses(body: type[Serializer]) -> dict[int, Any]:
    """Of a route: its answer and its errors."""
    errors = {status: OpenApiResponse(_REFERENCE, description=f"{what}.") for status, what in _CODES.items()}
    return {200: body, **errors}


def describe_errors(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Postprocessing hook: these routes answer no other form of errors, and the headers come with every response."""
    result["components"]["schemas"]["AssistError"] = ERROR_SCHEMA
    headers = {name: {"description": text, "schema": {"type": kind}} for name, (kind, text) in _HEADERS.items()}
    for path, operations in result["paths"].items():
        if path.startswith(f"{PREFIX}/"):
            for operation in operations.values():
                responses = operation["responses"]
                responses.pop("4XX", None), responses.pop("5XX", None)
                for response in responses.values():
                    response.setdefault("headers", {}).update(headers)
    return result
