"""Joins: a machine becomes a host (wire contract, section 11, "Join")."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from django.db import IntegrityError, connection, transaction

from hosts.credentials import Credentials, make_credentials
from hosts.errors import ClockOff, MachineJoined, NameTaken, ProtocolUnsupported, SubnetOverlaps
from hosts.models import JoinToken
from hosts.subnets import free_subnet
from hosts.tokens import claim_token
from vmbackend import services
from vmbackend.errors import HostIsAlive
from vmbackend.models import Host

# Raised when machines of before can no longer work with the control plane.
PROTOCOL = 1
CLOCK_SECONDS = 2.0
# An advisory lock of the database: names, networks and addresses are chosen by one join at a time.
_JOINS = 3_905_118_264_470_915_327
# A host's reports, of which it decides the size, are not read.
_COMPARED = ("name", "machine_id", "address", "subnet")


@dataclass(frozen=True, slots=True)
class Joining:
    """A machine as it describes itself. `routes`: the networks that it has routes to. `clock`: seconds since the
    epoch. `ssh_host_key`: the public line of the key by which other hosts know it; machines of before have none.
    """

    machine_id: str
    hostname: str
    arch: str
    version: str
    protocol: int
    address: str
    routes: list[str]
    clock: float
    ssh_host_key: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """A host, and what its machine needs to work as it."""

    host: Host
    credentials: Credentials
    peers: list[dict[str, str]]


def join_machine(token: str, asked: Joining) -> Joined:
    """Make the machine a host, or answer again if it is the one that used the token: with fresh credentials.

    Raise TokenInvalid, ProtocolUnsupported, ClockOff, MachineJoined, NameTaken, SubnetOverlaps, HostIsAlive: the token
    is as before. Dies after the row: the machine asks again.
    """
    # Before the wait for other joins, which is not the clock's fault.
    ahead = round(asked.clock - _database_clock(), 3)
    with transaction.atomic():
        claimed = claim_token(token, asked.machine_id)
        _lock_joins()
        _require_fitting(asked, ahead)
        host = _insert_host(claimed, asked) if claimed.host is None else _hand_over(claimed.host, asked)
        JoinToken.objects.filter(pk=claimed.pk).update(host=host)
    return Joined(host, make_credentials(host.pk), _peers_of(host))


def _lock_joins() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_JOINS])


def _database_clock() -> float:
    """Return the database's time in seconds since the epoch; all machines go by it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(cursor.fetchone()[0])


def _require_fitting(asked: Joining, ahead: float) -> None:
    if asked.protocol != PROTOCOL:
        raise ProtocolUnsupported(
            f"This machine speaks protocol {asked.protocol}, the control machine {PROTOCOL}: check out its version.",
            details={"wanted": PROTOCOL},
        )
    if abs(ahead) > CLOCK_SECONDS:
        raise ClockOff(
            f"The clock of this machine is {ahead:+.1f} s off: set it (chrony, timedatectl set-ntp true).",
            details={"seconds": ahead},
        )


def _insert_host(token: JoinToken, asked: Joining) -> Host:
    name = token.name or asked.hostname
    others = list(Host.objects.only(*_COMPARED))
    _require_free(others, name, asked)
    subnet = _choose_subnet(others, asked)
    try:
        return services.host_create(
            name=name,
            machine_id=asked.machine_id,
            subnet=str(subnet),
            address=asked.address,
            arch=asked.arch,
            transfer_key=asked.ssh_host_key,
        )
    except IntegrityError as error:  # a host that began by itself at this moment
        raise NameTaken(details={"name": name}) from error


def _hand_over(host: Host, asked: Joining) -> Host:
    """Return the host, whose machine is this one from now on, with its subnet and its workspaces."""
    told = {"machine_id": asked.machine_id, "address": asked.address, "transfer_key": asked.ssh_host_key}
    if all(getattr(host, name) == value for name, value in told.items()):
        return host
    _require_free(list(Host.objects.exclude(pk=host.pk).only(*_COMPARED)), host.name, asked)
    try:
        services.host_hand_over(host_id=host.pk, **told)
    except HostIsAlive as error:
        raise MachineJoined(error.message, details={"host": host.name}) from error
    host.refresh_from_db()
    return host


def _require_free(others: list[Host], name: str, asked: Joining) -> None:
    for other in others:
        if other.machine_id == asked.machine_id:
            raise MachineJoined(
                f"This machine is the host {other.name!r}: run `make leave` there first, or have it removed.",
                details={"host": other.name},
            )
        if other.name == name:
            raise NameTaken(
                f"Another host is called {name!r}: name this one with `make host-token NAME=...`.",
                details={"name": name},
            )
        if other.address == asked.address:
            raise _overlap(asked.address, other)
        for route in asked.routes:
            if IPv4Network(route).overlaps(IPv4Network(other.subnet)):
                raise _overlap(route, other)
        if IPv4Address(asked.address) in IPv4Network(other.subnet):
            raise _overlap(asked.address, other)


def _overlap(what: str, other: Host) -> SubnetOverlaps:
    return SubnetOverlaps(
        f"{what}, which this machine has, is of the host {other.name!r} ({other.subnet} at {other.address or '-'}).",
        details={"with": other.subnet, "host": other.name},
    )


def _choose_subnet(others: list[Host], asked: Joining) -> IPv4Network:
    """Return a network that is no other host's, none of the machine's own routes, and has no host's address in it."""
    addresses = [f"{address}/32" for address in [asked.address, *(other.address for other in others)] if address]
    taken = [*asked.routes, *(other.subnet for other in others), *addresses]
    found = free_subnet(map(IPv4Network, taken))
    if found is None:
        raise SubnetOverlaps("There is no free network of /20 in 10.128.0.0/9 for the machines of this host.")
    return found


def _peers_of(host: Host) -> list[dict[str, str]]:
    others = Host.objects.exclude(pk=host.pk).exclude(address="").order_by("name")
    return [{"name": one.name, "address": one.address, "subnet": one.subnet} for one in others]
