"""Reading requests in views."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.serializers import Serializer


def validated(serializer: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the body's documented fields. Raise a validation_error that names each wrong one; unknown ones are
    ignored.
    """
    checked = serializer(data=request.data)
    checked.is_valid(raise_exception=True)
    found: dict[str, Any] = checked.validated_data
    return found


def validated_query(serializer: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the query's documented parameters, likewise."""
    checked = serializer(data=request.query_params)
    checked.is_valid(raise_exception=True)
    found: dict[str, Any] = checked.validated_data
    return found


def body_of(request: Request) -> dict[str, Any]:
    """Return the parsed body; the parser has made sure that it is an object."""
    return request.data if isinstance(request.data, dict) else {}
