"""The OpenAPI document: what drf-spectacular cannot see by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers as s

from common.serializers import ResponseSerializer

ERROR_SCHEMA = {
    "type": "object",
    "required": ["success", "error", "code", "message", "request_id"],
    "properties": {
        "success": {"type": "boolean", "const": False},
        "error": {"type": "string", "description": "Machine readable; the same as `code` but for 401 and 403."},
        "code": {"type": "string"},
        "message": {"type": "string", "description": "Human-readable."},
        "details": {"type": "object", "description": "For a validation error: field to list of messages."},
        "request_id": {"type": "string"},
    },
}


TOO_MANY = "`rate_limited`: also where too many wrong credentials came from the caller's address."


class Success(ResponseSerializer):
    success = s.BooleanField(default=True)


class MessageResponse(Success):
    """The response of a deletion. With 202 `accepted` is true and the deletion continues."""

    accepted = s.BooleanField(required=False)
    message = s.CharField()


def add_errors(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Postprocessing hook: every operation may answer the one error body."""
    result.setdefault("components", {}).setdefault("schemas", {})["Error"] = ERROR_SCHEMA
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for operations in result["paths"].values():
        for operation in operations.values():
            limited = operation["responses"].setdefault("429", {"description": TOO_MANY, "content": content})
            limited["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
            operation["responses"]["4XX"] = {"description": "Refused; `code` says why.", "content": content}
            operation["responses"]["5XX"] = {"description": "A failure of ours or of the host.", "content": content}
    return result


def refused(codes: Mapping[int, str]) -> dict[int, OpenApiResponse]:
    """The documented refusals of a route: status -> which codes come with it."""
    error = {"$ref": "#/components/schemas/Error"}
    return {status: OpenApiResponse(error, description=f"{what}.") for status, what in codes.items()}
