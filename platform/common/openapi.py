"""The OpenAPI document: what a view says of its answers, and what drf-spectacular cannot see by itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse, extend_schema_serializer
from rest_framework import serializers as s

from common.body_rules import RAW, UNLIMITED, rule_of_action
from common.serializers import ResponseSerializer
from common.throttling import RedisThrottle


# The body of a list route is one object, too.
@extend_schema_serializer(many=False)
class Success(ResponseSerializer):
    success = s.BooleanField(default=True)


class MessageResponse(Success):
    """The response of a deletion. With 202 `accepted` is true and the deletion continues."""

    accepted = s.BooleanField(required=False)
    message = s.CharField()


def refused(codes: Mapping[int, str]) -> dict[int, OpenApiResponse]:
    """Return the documented refusals of a route: status -> which codes, in backticks, come with it, and when."""
    error = {"$ref": "#/components/schemas/Error"}
    return {status: OpenApiResponse(error, description=f"{what}.") for status, what in codes.items()}


def drop_inherited_texts(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Postprocessing hook: a schema is not described by the docstring of its serializer's base class."""
    inherited = {inspect.getdoc(base) for base in Success.__mro__} - {None}
    for schema in result["components"]["schemas"].values():
        if schema.get("description") in inherited:
            del schema["description"]
    return result


class DescribedSchema(AutoSchema):
    """Adds who may call a route and how much (`x-scopes`, `x-limits`), and the first sentence as its summary.

    A view with limits that are counted after its checks, and so are no throttles of DRF, names them in
    `later_throttles`: action -> throttle classes.
    """

    def get_summary(self) -> str | None:
        text = " ".join(self.get_description().split("\n\n")[0].split())
        sentence, _, _ = text.partition(". ")
        return sentence.partition(": ")[0].rstrip(".") or None

    def get_extensions(self) -> dict[str, Any]:
        found = {"x-scopes": self._scopes(), "x-limits": self._limits()}
        return super().get_extensions() | {name: value for name, value in found.items() if value}

    def _scopes(self) -> list[str]:
        """Return the scopes of account credentials that the view's permission class allows."""
        for permission in self.view.permission_classes:
            if hasattr(permission, "allowed_scopes"):
                return sorted(permission.allowed_scopes(self.view))
        return []

    def _limits(self) -> dict[str, Any]:
        rates = [_rate(throttle) for throttle in self._throttles()]
        rule = rule_of_action(type(self.view), getattr(self.view, "action", ""), str(self.method))
        body = rule.limit(self._raw_type())
        # The limit of an upload is the size which its permit is for.
        size = {"body_bytes": body} if body < UNLIMITED else {}
        return {**size, "rates": rates} if rates else size

    def _raw_type(self) -> str:
        described = self._get_request_body()  # type: ignore[no-untyped-call]
        return RAW if RAW in (described or {}).get("content", {}) else ""

    def _throttles(self) -> Iterator[RedisThrottle]:
        later = getattr(self.view, "later_throttles", {}).get(getattr(self.view, "action", ""), ())
        for throttle in [*self.view.get_throttles(), *(kind() for kind in later)]:
            if isinstance(throttle, RedisThrottle):
                yield throttle


def _rate(throttle: RedisThrottle) -> dict[str, Any]:
    return {"name": throttle.scope, "requests": throttle.plain_limit(), "seconds": throttle.window_seconds}
