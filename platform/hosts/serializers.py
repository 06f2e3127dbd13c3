"""Bodies of the routes of hosts (wire contract, section 11)."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from rest_framework import serializers as s

from common.fields import BoundedList, StrictChar, StrictFloat, StrictInteger, StrictRegex
from common.openapi import Success
from common.serializers import Timestamp
from hosts.joins import Joining
from hosts.tokens import DEFAULT, LONGEST, SHORTEST
from vmbackend.peers import unusable

HOST_NAME = re.compile(r"^[a-z0-9-]{1,40}\Z")
_MOST_ROUTES = 4096


class NewTokenRequest(s.Serializer[Any]):
    roles = s.ListField(child=s.ChoiceField(choices=["host"]), required=False, allow_empty=False, max_length=1)
    name = StrictRegex(HOST_NAME, required=False, help_text="The host's name; default: the machine's own.")
    ttl_seconds = StrictInteger(min_value=SHORTEST, max_value=LONGEST, default=DEFAULT)


class NewTokenResponse(Success):
    token = s.CharField(help_text="Shown once.")
    command = s.CharField(help_text="The line for the new machine.")
    expires_at = Timestamp()


class RemoveHostQuery(s.Serializer[Any]):
    reason = StrictChar(min_length=1, max_length=300)


def _check_address(value: str) -> None:
    try:
        reason = unusable(IPv4Address(value))
    except ValueError:
        reason = "This is not an IPv4 address."
    if reason:
        raise s.ValidationError(reason)


def _check_network(value: str) -> None:
    try:
        IPv4Network(value)
    except ValueError:
        raise s.ValidationError("This is not a network such as 10.0.0.0/8.") from None


class JoinRequest(s.Serializer[Any]):
    token = StrictChar(max_length=200)
    machine_id = StrictRegex(r"^[0-9a-f]{16,64}\Z", help_text="Of the machine's state folder.")
    hostname = StrictRegex(HOST_NAME)
    arch = StrictRegex(r"^[a-z0-9_]{1,16}\Z")
    version = StrictChar(max_length=40)
    protocol = StrictInteger(min_value=0, max_value=1 << 30)
    address = StrictChar(max_length=15, validators=[_check_address])
    routes = BoundedList(child=StrictChar(max_length=18, validators=[_check_network]), max_length=_MOST_ROUTES)
    clock = StrictFloat(help_text="Seconds since the epoch.")

    def joining(self) -> Joining:
        """Return the machine of a valid request."""
        return Joining(**{name: value for name, value in self.validated_data.items() if name != "token"})


class JoinedHost(s.Serializer[Any]):
    id = s.CharField()
    name = s.CharField()
    subnet = s.CharField()


class JoinCredentials(s.Serializer[Any]):
    database = s.CharField()
    redis = s.CharField()
    ca = s.CharField()
    host_key = s.CharField()
    data_key = s.CharField()


class JoinPeer(s.Serializer[Any]):
    name = s.CharField()
    address = s.CharField()
    subnet = s.CharField()


class JoinResponse(Success):
    host = JoinedHost()
    instance = s.CharField()
    settings = s.DictField(child=s.CharField())
    credentials = JoinCredentials()
    peers = JoinPeer(many=True)
