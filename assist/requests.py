"""Synchronous parts of a call: before the model is asked, who asks for what; afterwards the account of the call."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from redis import RedisError
from rest_framework.serializers import Serializer

from accounts.models import Account
from assist.authentication import require_key
from assist.day_count import day_state
from assist.errors import GenerationFailed, InvalidApiKey, RateLimitExceeded
from assist.generation import CORRECTION_BYTES, REPEATED_BYTES, Question, first_question
from assist.model.endpoint import Endpoint
from assist.models import ApiKey
from assist.rate_headers import MINUTE_SECONDS, DayState, rate_headers, unknown_caller
from assist.routes import AssistRoute
from assist.selectors import paying_namespace
from assist.services import api_key_used
from assist.spent import most_tokens
from common.errors import ValidationError
from common.json_objects import parse_object
from common.request_counts import RateState, count_request
from namespaces.models import Namespace
from namespaces.selectors import require_open
from webhooks.direct import DirectReceiver
from webhooks.targets import required_host

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Caller:
    """Sender of a request, as far as it is known. The headers of the response show `day` and `minute`.

    A call that counts learns the state of its day from its count; all other calls look it up (`day_look_up`).
    """

    key: ApiKey | None = None
    day: DayState | None = None
    minute: RateState | None = None

    def headers(self) -> dict[str, str]:
        return rate_headers(self.day or unknown_caller(), self.minute)

    def day_look_up(self) -> None:
        if self.key is not None and self.day is None:
            self.day = day_state(self.key.account)


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked request. `webhook_url`: the address that wants its event. Its name is still to be looked up, which
    gives the `receiver`.
    """

    key: ApiKey
    namespace: Namespace
    question: Question
    tokens: int
    language: str = ""
    webhook_url: str = ""
    receiver: DirectReceiver | None = None


def configured_endpoint() -> Endpoint:
    """Return the model of the settings. Raise GenerationFailed, which names the missing setting."""
    env = settings.ENV
    for name in ("assist_url", "assist_model"):
        if not getattr(env, name):
            raise GenerationFailed(
                f"No model is configured in this installation: the setting PLATFORM_{name.upper()} is missing."
            )
    return Endpoint(
        url=env.assist_url,
        model=env.assist_model,
        key=env.assist_key,
        format=env.assist_format,
        output_tokens=env.assist_output_tokens,
        connect_seconds=env.assist_connect_seconds,
        seconds=env.assist_seconds,
    )


def identify_caller(request: HttpRequest, caller: Caller) -> ApiKey:
    """Look up the API key of a request and note it in `caller`. Raise InvalidApiKey."""
    caller.key = key = require_key(request)
    return key


def request_check(request: HttpRequest, caller: Caller, route: AssistRoute, body: type[Serializer[Any]]) -> Asked:
    """Check a request before the model is asked.

    Raise InvalidApiKey, InvalidJson, ValidationError, RateLimitExceeded, and what `require_open` raises.
    """
    key = identify_caller(request, caller)
    namespace = _open_namespace(key)
    data = _validated(request, body)
    _count_minute(key.account, caller)
    webhook_url = _taken_url(data, route)
    sent = {name: value for name, value in data.items() if value not in ("", None)}
    question = first_question(route, sent)
    api_key_used(key)
    repeated = REPEATED_BYTES + CORRECTION_BYTES
    tokens = most_tokens(question.text, repeated, settings.ENV.assist_output_tokens)
    return Asked(key, namespace, question, tokens, data.get("language", ""), webhook_url)


def _open_namespace(key: ApiKey) -> Namespace:
    """Return the namespace that pays. Raise InvalidApiKey (it is being deleted), NamespaceSuspended, QuotaExceeded."""
    namespace = paying_namespace(key)
    if namespace.deleted_at is not None:
        raise InvalidApiKey("The namespace of this API key is being deleted.")
    require_open(namespace)
    return namespace


def _validated(request: HttpRequest, body: type[Serializer[Any]]) -> dict[str, Any]:
    checked = body(data=parse_object(request.body, allow_nul=True))
    checked.is_valid(raise_exception=True)
    found: dict[str, Any] = checked.validated_data
    return found


def _taken_url(data: dict[str, Any], route: AssistRoute) -> str:
    """Remove the fields that are not for the model from `data`. Return the URL that gets this route's event, or an
    empty text.
    """
    url, events = data.pop("webhook_url", ""), data.pop("events", None)
    return url if events is None or route.event in events else ""


def with_receiver(asked: Asked) -> Asked:
    """Return the request with the receiver that its `webhook_url` names. A look-up of the name may take a second. Raise
    ValidationError.
    """
    try:
        host = required_host(asked.webhook_url)
    except ValidationError as error:
        raise ValidationError(details={"webhook_url": (error.details or {}).get("url", [])}) from error
    return replace(asked, receiver=DirectReceiver(asked.webhook_url, host, asked.key.webhook_secret, asked.key.pk))


def _count_minute(account: Account, caller: Caller) -> None:
    """Count the call in the account's minute. If Redis does not answer, the call is let through: the day's count, which
    is exact, needs no Redis.
    """
    limit = settings.ENV.assist_calls_per_minute
    try:
        caller.minute = count_request(f"assist:account:{account.pk}", limit=limit, window_seconds=MINUTE_SECONDS)
    except RedisError as exc:
        logger.warning("the calls of a minute are not counted: %s", exc)
        return
    if not caller.minute.accepted:
        seconds = max(1, round(caller.minute.reset_seconds + 0.5))
        message = f"At most {limit} calls of an account in a minute."
        raise RateLimitExceeded(message, headers={"Retry-After": str(seconds)})
