"""Bodies of code assistance and of the routes of its keys."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from assist.models import ApiKey
from assist.routes import EVENTS
from common.fields import BoundedList, StrictChar
from common.openapi import Success
from common.serializers import Timestamp
from webhooks.targets import url_problem

MAX_URL = 2048
MAX_NAME = 255
EVENTS_HELP = (
    "Events of this request to send to `webhook_url`: `generation.complete` (generate and debug, "
    "`data.kind` says which), `optimization.complete`. Default: all."
)
URL_HELP = "Address that gets the event of this request, signed with the key's `webhook_secret`; https, a public host."


def _text(*, required: bool = False) -> StrictChar:
    """Return a field for code: spaces are kept. The limit of the body is its only limit."""
    return StrictChar(required=required, allow_blank=not required, trim_whitespace=False)


class AssistRequest(s.Serializer[Any]):
    """Request of one of the three routes."""

    webhook_url = StrictChar(required=False, max_length=MAX_URL, help_text=URL_HELP)
    events = BoundedList(
        child=StrictChar(max_length=64), required=False, min_length=1, max_length=10, help_text=EVENTS_HELP
    )

    def validate_webhook_url(self, value: str) -> str:
        if problem := url_problem(value):
            raise s.ValidationError(problem)
        return value

    def validate_events(self, value: list[str]) -> list[str]:
        if unknown := [name for name in value if name not in EVENTS]:
            raise s.ValidationError(f"There is no event {unknown[0]!r} here; there are: {', '.join(EVENTS)}.")
        return value


class AssistGenerateRequest(AssistRequest):
    prompt = _text(required=True)
    language = StrictChar(required=False, allow_blank=True, max_length=MAX_NAME)
    framework = StrictChar(required=False, allow_blank=True, max_length=MAX_NAME)
    context = _text()  # type: ignore[assignment]  # the specification's name


class AssistDebugRequest(AssistRequest):
    code = _text(required=True)
    error = _text()
    context = _text()  # type: ignore[assignment]


class AssistMetrics(s.Serializer[Any]):
    current = s.JSONField(required=False, help_text="The present measurements: a text, a number, or an object of them.")
    target = s.JSONField(required=False, help_text="The wanted measurements, in the same form.")


class AssistOptimizeRequest(AssistRequest):
    code = _text(required=True)
    type = s.ChoiceField(choices=["performance", "bundle", "database"])
    metrics = AssistMetrics(required=False)


class AssistGenerateResponse(Success):
    code = s.CharField()
    explanation = s.CharField()
    suggestions = s.ListField(child=s.CharField())


class AssistDebugResponse(Success):
    analysis = s.CharField()
    fix = s.CharField()
    explanation = s.CharField()
    prevention = s.CharField()


class AssistOptimization(s.Serializer[Any]):
    type = s.CharField()
    code = s.CharField()
    improvement = s.CharField()
    explanation = s.CharField()


class AssistOptimizeResponse(Success):
    analysis = s.CharField()
    optimizations = AssistOptimization(many=True)


class ApiKeyRequest(s.Serializer[Any]):
    name = StrictChar(required=False, default="", allow_blank=True, max_length=120)
    namespace = StrictChar(
        required=False, max_length=128, help_text="Slug of the namespace that pays. Default: the default namespace."
    )


class ApiKeyBody(s.Serializer[Any]):
    id = s.CharField()
    name = s.CharField()
    key_prefix = s.CharField()
    namespace = s.SerializerMethodField()
    created_at = Timestamp()
    last_used_at = Timestamp(allow_null=True)

    def get_namespace(self, api_key: ApiKey) -> str | None:
        return api_key.namespace.slug if api_key.namespace else None


class ApiKeyListResponse(Success):
    api_keys = ApiKeyBody(many=True)
    total = s.IntegerField()
    page = s.IntegerField()
    limit = s.IntegerField()


class NewApiKeyResponse(Success):
    api_key = ApiKeyBody()
    key = s.CharField(help_text="Shown once.")
    webhook_secret = s.CharField(help_text="Signs the events sent to the `webhook_url` of requests. Shown once.")
