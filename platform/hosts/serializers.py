"""Bodies of the routes of hosts (wire contract, section 11)."""

from __future__ import annotations

import re
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from django.conf import settings
from rest_framework import serializers as s

from common.fields import BoundedList, StrictChar, StrictFloat, StrictInteger, StrictRegex
from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer, Timestamp
from hosts.joins import PROTOCOL, Joining
from hosts.move_bodies import DrainObject, MoveObject
from hosts.tokens import DEFAULT, LONGEST, SHORTEST
from vmbackend.host_states import SHOWN_STATES
from vmbackend.models import Host
from vmbackend.peers import unusable
from workspaces.moves.outlook import moves_outlook
from workspaces.moves.selectors import ShownMove, shown_moves

HOST_NAME = re.compile(r"^[a-z0-9-]{1,40}\Z")
_MOST_ROUTES = 4096
# The one form of a public key of this kind, without a comment: 51 bytes, of which the key is the last 32.
SSH_KEY = re.compile(r"^ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-P][A-Za-z0-9+/]{42}\Z")


class NewTokenRequest(s.Serializer[Any]):
    roles = s.ListField(child=s.ChoiceField(choices=["host"]), required=False, allow_empty=False, max_length=1)
    name = StrictRegex(HOST_NAME, required=False, help_text="The host's name; default: the machine's own.")
    ttl_seconds = StrictInteger(min_value=SHORTEST, max_value=LONGEST, default=DEFAULT)


class NewTokenResponse(Success):
    token = s.CharField(help_text="Shown once.")
    command = s.CharField(help_text="The line for the new machine.")
    expires_at = Timestamp()


class RemoveHostQuery(s.Serializer[Any]):
    reason = StrictChar(min_length=1, max_length=500)


class ListHostsQuery(s.Serializer[Any]):
    state = s.ChoiceField(choices=SHOWN_STATES, required=False)
    label = s.CharField(  # type: ignore[assignment]  # a field of this name, beside that of the base class
        required=False, max_length=127, help_text="`NAME`, or `NAME=VALUE`."
    )
    search = s.CharField(required=False, max_length=64, help_text="A part of the name, or an id.")


class ReasonRequest(s.Serializer[Any]):
    reason = StrictChar(min_length=1, max_length=500)


class GiveUpRequest(ReasonRequest):
    confirm = StrictChar(max_length=40, help_text="The name of the host.")


class ChangeHostRequest(ReasonRequest):
    name = StrictRegex(HOST_NAME, required=False)
    labels = s.DictField(child=StrictChar(max_length=63, allow_blank=True), required=False)
    zone = StrictChar(max_length=63, allow_blank=True, required=False)


class HostMachines(s.Serializer[Any]):
    running = s.IntegerField()
    sleeping = s.IntegerField()
    stopped = s.IntegerField()


class HostObject(ResponseSerializer):
    """A host. `state_since`: of the state as it is shown; `lease_until`: null once it is over. Sizes of memory and disk
    are MiB.
    """

    id = s.CharField()
    name = s.CharField()
    roles = s.ListField(child=s.CharField())
    state = s.ChoiceField(choices=SHOWN_STATES)
    state_since = Timestamp()
    lease_until = Timestamp(allow_null=True)
    arch = s.CharField()
    accelerated = s.BooleanField()
    cpu_model = s.CharField(allow_null=True)
    qemu = s.CharField(allow_null=True)
    libvirt = s.CharField(allow_null=True)
    kit = s.CharField(allow_null=True)
    version = s.CharField()
    protocol = s.IntegerField()
    zone = s.CharField()
    labels = s.DictField(child=s.CharField())
    subnet = s.CharField()
    address = BlankAsNull()
    network = s.CharField()
    cpus = s.IntegerField()
    load = s.FloatField(allow_null=True)
    memory_mb = s.IntegerField()
    memory_promised_mb = s.IntegerField()
    disk_mb = s.IntegerField()
    disk_free_mb = s.IntegerField()
    disk_promised_mb = s.IntegerField()
    machines = HostMachines()
    snapshots_bytes = s.IntegerField()
    problem = BlankAsNull()
    clock_offset_seconds = s.FloatField(allow_null=True)
    joined_at = Timestamp(allow_null=True)
    last_seen_at = Timestamp(allow_null=True)

    def read_roles(self, host: Host) -> list[str]:
        return ["host"] if host.machine_id else list(settings.ENV.machine_roles)

    def read_state(self, host: Host) -> str:
        return host.shown_state

    def read_state_since(self, host: Host) -> datetime:
        return host.shown_since

    def read_cpu_model(self, host: Host) -> None:
        """Return null: hosts do not report it yet."""

    def read_qemu(self, host: Host) -> str | None:
        return host.capabilities.get("qemu") or None

    def read_libvirt(self, host: Host) -> str | None:
        return host.capabilities.get("libvirt") or None

    def read_kit(self, host: Host) -> None:
        """Return null: hosts do not report it yet."""

    def read_protocol(self, host: Host) -> int:
        return PROTOCOL

    def read_network(self, host: Host) -> str:
        return "routes"

    def read_machines(self, host: Host) -> dict[str, int]:
        return {"running": host.machines_running, "sleeping": host.machines_sleeping, "stopped": host.machines_stopped}


class HostOrphan(s.Serializer[Any]):
    workspace_id = s.CharField()
    epoch = s.IntegerField()
    kept_since = s.FloatField(help_text="Seconds since the epoch.")
    size_bytes = s.IntegerField()


class HostWould(s.Serializer[Any]):
    """Outcome of draining the host, and what is lost with it."""

    moves = s.IntegerField()
    fits_nowhere = s.ListField(child=s.DictField())
    replicated = s.IntegerField()
    lost = s.IntegerField()


class HostDetails(HostObject):
    images = s.ListField(child=s.CharField())
    orphans = HostOrphan(many=True)
    moves = MoveObject(many=True)
    would = HostWould()

    def read_orphans(self, host: Host) -> list[dict[str, Any]]:
        return [{**orphan, "workspace_id": orphan["machine_id"]} for orphan in host.orphans]

    def read_moves(self, host: Host) -> list[ShownMove]:
        return shown_moves(host)

    def read_would(self, host: Host) -> dict[str, Any]:
        return moves_outlook(host)


class HostResponse(Success):
    host = HostDetails()


class DrainResponse(HostResponse):
    drain = DrainObject()


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
    ssh_host_key = StrictRegex(
        SSH_KEY, required=False, help_text="`ssh-ed25519 BASE64`; without one no workspace moves there or away."
    )

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
