"""Request bodies of the network routes (wire contract, section 3: added routes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework import serializers

from common.fields import StrictBoolean, StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import ResponseSerializer
from edge.address import SLUG_LENGTH
from workspaces.network import rules
from workspaces.serializers import NetworkObject, PublicPortObject

MAX_ENTRIES = 100
SLUG = rf"^[a-z0-9]([a-z0-9-]{{0,{SLUG_LENGTH - 2}}}[a-z0-9])?$"


class Port(StrictInteger):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=65535, **kwargs)


class Ports(serializers.ListField):
    """Port numbers, sorted, each once."""

    child = Port()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_ENTRIES, required=False, **kwargs)

    def to_internal_value(self, data: Any) -> list[int]:
        return sorted(set(super().to_internal_value(data)))


class Entry(StrictChar):
    """A string that a rule brings into its form."""

    def __init__(self, rule: Callable[[str], str], **kwargs: Any) -> None:
        self.rule = rule
        super().__init__(max_length=300, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        return self.rule(super().to_internal_value(data))


class Entries(serializers.ListField):
    """Entries of one rule, each once, in the order given."""

    def __init__(self, rule: Callable[[str], str], **kwargs: Any) -> None:
        super().__init__(child=Entry(rule), max_length=MAX_ENTRIES, required=False, **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        return list(dict.fromkeys(super().to_internal_value(data)))


class NetworkRequest(serializers.Serializer):
    """What is left out stays as it is."""

    allow_internet = StrictBoolean(
        required=False, help_text="Every public address. Without it only what `egress` lists is reached."
    )
    egress = Entries(
        rules.destination,
        help_text="Exceptions while `allow_internet` is false: networks, names (`api.example.com`: that name alone), "
        "`*.example.com` (every name below). Kept without effect while it is true.",
    )
    egress_ports = Ports(help_text="The only TCP and UDP ports reached outside; empty: all.")
    public_access = StrictBoolean(required=False, help_text="Whether the public ports are open at all.")
    ingress = Entries(rules.network, help_text="The only networks whose callers reach the public ports; empty: all.")
    ingress_ports = Ports(
        help_text="The only ports of the workspace that the edge and the host reach, beside SSH; empty: all."
    )


class PublishRequest(serializers.Serializer):
    """A port to open; of one that is open already, label and slug are changed."""

    port = Port()
    label = StrictChar(max_length=100, required=False, allow_blank=True)  # type: ignore[assignment]  # its name
    slug = serializers.RegexField(
        SLUG,
        required=False,
        allow_blank=True,
        help_text="Lowercase letters, digits and hyphens; stands in front of the hash in the address.",
    )

    def validate_port(self, value: int) -> int:
        return rules.public_port(value)


class NetworkResponse(Success):
    network = NetworkObject()


class NetworkChangedResponse(NetworkResponse):
    applied = serializers.BooleanField(
        help_text="Whether it is in effect on the host; if not, the host applies it as soon as it can."
    )
    problem = serializers.CharField(allow_null=True, help_text="Why it is not in effect yet.")


class PublicPorts(ResponseSerializer):
    public_access = serializers.BooleanField(
        source="workspace.public_access", help_text="False: all are closed, whatever is listed."
    )
    public_ports = PublicPortObject(many=True, source="workspace.published")


class PublicPortsResponse(Success, PublicPorts):
    pass


class PublishedEnvelope(Success):
    public_port = PublicPortObject()


class PublicPortResponse(PublishedEnvelope, PublicPorts):
    pass


class WithdrawnEnvelope(Success):
    message = serializers.CharField()


class WithdrawnResponse(WithdrawnEnvelope, PublicPorts):
    pass
