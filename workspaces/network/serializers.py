"""Requests and responses of the network routes (wire contract, section 3: added routes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework import serializers

from common.fields import BoundedList, StrictBoolean, StrictChar, StrictInteger, StrictRegex
from common.openapi import Success
from common.serializers import ResponseSerializer, Timestamp
from edge.addresses import SLUG_LENGTH
from workspaces.models.public_port import Access
from workspaces.network import rules
from workspaces.network.links import MAX_SECONDS, MIN_SECONDS
from workspaces.serializers import NetworkObject, PublicPortObject

MAX_ENTRIES = 100
SLUG = rf"^[a-z0-9]([a-z0-9-]{{0,{SLUG_LENGTH - 2}}}[a-z0-9])?$"


class Port(StrictInteger):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=65535, **kwargs)


class Ports(BoundedList):
    """Port numbers, sorted, without duplicates."""

    child = Port()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_ENTRIES, required=False, **kwargs)

    def to_internal_value(self, data: Any) -> list[int]:
        return sorted(set(super().to_internal_value(data)))


class Entry(StrictChar):
    """A string that a rule validates and normalizes."""

    def __init__(self, rule: Callable[[str], str], **kwargs: Any) -> None:
        self.rule = rule
        super().__init__(max_length=300, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        return self.rule(super().to_internal_value(data))


class Entries(BoundedList):
    """Entries of one rule without duplicates, in the order given."""

    def __init__(self, rule: Callable[[str], str], **kwargs: Any) -> None:
        super().__init__(child=Entry(rule), max_length=MAX_ENTRIES, required=False, **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        return list(dict.fromkeys(super().to_internal_value(data)))


class NetworkRequest(serializers.Serializer[Any]):
    """Network settings; fields that are left out stay unchanged."""

    allow_internet = StrictBoolean(
        required=False, help_text="Allow every public address; otherwise only those in `egress`."
    )
    egress = Entries(
        rules.destination,
        help_text="Exceptions while `allow_internet` is false: networks, names (`api.example.com`: that name alone), "
        "`*.example.com` (every name below). Stored without effect while it is true.",
    )
    egress_ports = Ports(help_text="Allowed destination ports, TCP and UDP; empty: all.")
    public_access = StrictBoolean(required=False, help_text="Whether the public ports are open.")
    ingress = Entries(rules.network, help_text="Networks that may connect to the public ports; empty: all.")
    ingress_ports = Ports(
        help_text="Ports of the workspace that the edge and the host may connect to, besides SSH; empty: all."
    )


class PortFields(serializers.Serializer[Any]):
    """Label, slug and access of a public port."""

    label = StrictChar(max_length=100, required=False, allow_blank=True)  # type: ignore[assignment]  # the contract's name
    slug = StrictRegex(
        SLUG,
        required=False,
        allow_blank=True,
        help_text="Lowercase letters, digits and hyphens; precedes the hash in the address.",
    )
    access = serializers.ChoiceField(
        Access.choices,
        required=False,
        help_text="public: everyone may open the port; private: visitors need a link. A new port is public.",
    )


class ChangePortRequest(PortFields):
    """New slug, label or access of a port. Fields that are left out stay unchanged. Another slug gives the port another
    address.
    """


class PublishRequest(PortFields):
    """A port to publish; label, slug and access of a published port are changed."""

    port = Port()

    def validate_port(self, value: int) -> int:
        return rules.public_port(value)


class NetworkResponse(Success, NetworkObject):
    """The settings, at the top level and once more as `network`."""

    network = NetworkObject()


class NetworkChangedResponse(NetworkResponse):
    applied = serializers.BooleanField(
        help_text="Whether it is in effect on the host; if not, the host applies it as soon as it can."
    )
    problem = serializers.CharField(allow_null=True, help_text="Why it is not in effect yet.")
    accepted = serializers.BooleanField(required=False, help_text="With 202: it waits for the host.")


class PublicPorts(ResponseSerializer):
    public_access = serializers.BooleanField(
        source="workspace.public_access", help_text="False: all are closed, whatever is listed."
    )
    ports = PublicPortObject(many=True, source="workspace.published")
    public_ports = PublicPortObject(many=True, source="workspace.published", help_text="Same as `ports`.")


class PublicPortsResponse(Success, PublicPorts):
    pass


class PublicPortResponse(Success, PublicPorts):
    port = PublicPortObject()
    public_port = PublicPortObject(source="port", help_text="Same as `port`.")


class WithdrawnResponse(Success, PublicPorts):
    message = serializers.CharField()


class LinkRequest(serializers.Serializer[Any]):
    """A link to a private port."""

    ttl_seconds = StrictInteger(min_value=MIN_SECONDS, max_value=MAX_SECONDS)
    label = StrictChar(max_length=100, required=False, allow_blank=True)  # type: ignore[assignment]  # as of a port


class PortLinkObject(ResponseSerializer):
    class Meta:
        ref_name = "PortLink"

    id = serializers.CharField()
    url = serializers.CharField(allow_null=True, help_text="With its secret, shown once: null in lists.")
    label = serializers.CharField()  # type: ignore[assignment]  # as of a port
    expires_at = Timestamp()
    created_at = Timestamp()
    last_used_at = Timestamp(allow_null=True, help_text="Precise to the minute.")


class PortLinkResponse(Success):
    link = PortLinkObject()


class PortLinksResponse(Success):
    links = PortLinkObject(many=True)
