"""Bodies of the webhook routes."""

from __future__ import annotations

import re
from typing import Any

from rest_framework import serializers as s

from common.fields import BoundedList, StrictBoolean, StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer, Timestamp
from webhooks.events import CATALOGUE, EVERY_EVENT
from webhooks.models import Delivery, DeliveryStatus, DisabledReason
from webhooks.signing_secrets import PREFIX
from webhooks.targets import url_problem

MAX_URL = 2048
GRACE_SECONDS, MAX_GRACE_SECONDS = 86_400, 604_800
_SECRET = re.compile(r"[!-~]+")
# A receiver of one event can try secrets until its signature fits: those that the platform makes are much longer.
LEAST_SECRET = 8


class EventNames(BoundedList):
    """Names of events, each once, in the order in which they were given."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=StrictChar(max_length=64), min_length=1, max_length=100, **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        names = list(dict.fromkeys(super().to_internal_value(data)))
        if unknown := [name for name in names if name not in CATALOGUE and name != EVERY_EVENT]:
            raise s.ValidationError([f"There is no event {name!r}." for name in unknown])
        return names


EVENTS_HELP = "Names from `GET /webhooks/events`, or `*` for all, events of later versions included."
URL_HELP = "https, to a public host, without user name and password."


class UpdateWebhookRequest(s.Serializer[Any]):
    url = StrictChar(max_length=MAX_URL, required=False, help_text=URL_HELP)
    events = EventNames(required=False, help_text=EVENTS_HELP)
    active = StrictBoolean(
        required=False, help_text="`true` switches the webhook on again, also if the platform has switched it off."
    )
    description = StrictChar(max_length=500, required=False, allow_blank=True)

    def validate_url(self, value: str) -> str:
        if problem := url_problem(value):
            raise s.ValidationError(problem)
        return value


class CreateWebhookRequest(UpdateWebhookRequest):
    url = StrictChar(max_length=MAX_URL, help_text=URL_HELP)
    events = EventNames(help_text=EVENTS_HELP)
    active = StrictBoolean(default=True)
    description = StrictChar(max_length=500, default="", allow_blank=True)
    namespace = StrictChar(
        max_length=128,
        required=False,
        help_text="The slug: events of this namespace only. Default: events of all namespaces.",
    )
    secret = StrictChar(
        min_length=LEAST_SECRET,
        max_length=255,
        # A space at an end would be left out here, and not by the receiver.
        trim_whitespace=False,
        required=False,
        help_text=f"Visible ASCII characters: {LEAST_SECRET} at least, without counting a `{PREFIX}` before them. "
        "Default: `whsec_` and 256 random bits in base64.",
    )

    def validate_secret(self, value: str) -> str:
        if not _SECRET.fullmatch(value):
            raise s.ValidationError("Visible ASCII characters only.")
        if len(value.removeprefix(PREFIX)) < LEAST_SECRET:
            raise s.ValidationError(f"Ensure that `{PREFIX}` is followed by {LEAST_SECRET} characters or more.")
        return value


class RotateWebhookRequest(s.Serializer[Any]):
    grace_seconds = StrictInteger(
        min_value=0,
        max_value=MAX_GRACE_SECONDS,
        default=GRACE_SECONDS,
        help_text="For how long the former secret signs as well; 0: not at all.",
    )


class RedeliverWebhookRequest(s.Serializer[Any]):
    since = s.DateTimeField(help_text="Deliveries that were sent or tried before are left out.")
    status = s.ChoiceField(choices=[DeliveryStatus.FAILED.value], default=DeliveryStatus.FAILED.value)


class ListWebhooksQuery(s.Serializer[Any]):
    namespace = StrictChar(max_length=128, required=False, help_text="The slug: only the webhooks of this namespace.")


class ListDeliveriesQuery(s.Serializer[Any]):
    status = s.ChoiceField(choices=DeliveryStatus.choices, required=False)


class WebhookObject(ResponseSerializer):
    id = s.IntegerField(source="public_id", help_text="A random number of at most 53 bits.")
    url = s.CharField()
    events = s.ListField(child=s.CharField())
    active = s.BooleanField()
    description = s.CharField()
    namespace = BlankAsNull(source="namespace_slug", help_text="Null: events of all namespaces.")
    last_triggered_at = Timestamp(allow_null=True, help_text="The newest attempt of any delivery.")
    last_status_code = s.IntegerField(allow_null=True, help_text="The status code of the answer; null: no answer.")
    disabled_reason = s.ChoiceField(
        choices=DisabledReason.choices,
        allow_null=True,
        help_text="Why the platform switched the webhook off: the receiver answered 410, or got nothing for five days.",
    )
    created_at = Timestamp()


class NewWebhookObject(WebhookObject):
    secret = s.CharField(help_text="Shown here only.")


class WebhookResponse(Success):
    webhook = WebhookObject()


class NewWebhookResponse(Success):
    webhook = NewWebhookObject()


class RotatedWebhookResponse(WebhookResponse):
    secret = s.CharField(help_text="The new secret; shown here only.")


class WebhookListResponse(Success):
    webhooks = WebhookObject(many=True)


class WebhookEventsResponse(Success):
    events = s.ListField(child=s.CharField())
    descriptions = s.DictField(child=s.CharField(), help_text="Each event with a sentence that says when it is sent.")


class WebhookDelivery(ResponseSerializer):
    id = s.CharField()
    event_id = s.CharField(help_text="`webhook-id` of each attempt, the same at a redelivery.")
    event = s.CharField()
    status = s.ChoiceField(choices=DeliveryStatus.choices)
    attempts = s.IntegerField()
    last_status_code = s.IntegerField(allow_null=True)
    last_error = BlankAsNull()
    next_attempt_at = Timestamp(allow_null=True)
    created_at = Timestamp()
    delivered_at = Timestamp(allow_null=True)

    def read_event(self, row: Delivery) -> str:
        return row.event.type


class WebhookDeliveryResponse(Success):
    delivery = WebhookDelivery()


class RedeliveredResponse(Success):
    count = s.IntegerField(help_text="Deliveries that are due again.")
