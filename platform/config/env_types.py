"""Types of settings that are more than a number or a text (config/env.py)."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address, ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from outbound.errors import OutboundError
from outbound.urls import place_of, server_place
from vmbackend.labels import is_label
from vmbackend.peers import unusable


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _places(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        try:
            place_of(value)
        except OutboundError as error:
            raise ValueError(f"{value} is not host:port. {error.sentence}") from None
    return values


def _networks(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        ip_network(value)
    return values


def _addresses(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(ip_address(value)) for value in values)


def _resolvers(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        server_place(value)
    return values


def _labels(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return labels as NAME=VALUE; NAME=*: with any value."""
    for value in values:
        name, separator, label = value.partition("=")
        if not (separator and is_label(name, label)):
            raise ValueError(f"{value} is not NAME=VALUE of at most 63 letters, digits, dots, hyphens, underscores.")
    return values


def _host_address(value: str) -> str:
    """Return the IPv4 address of one machine; empty: none."""
    if value and (reason := unusable(IPv4Address(value))):
        raise ValueError(reason)
    return value


def _roles(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the roles of a machine: one with the control plane has all that visitors and files need, too."""
    if unknown := set(values) - {*CONTROL_ROLES, HOST_ROLE}:
        raise ValueError(f"There is no role {min(unknown)}: it is a list of {', '.join((*CONTROL_ROLES, HOST_ROLE))}.")
    missing = [role for role in CONTROL_ROLES if role not in values]
    if not values or missing not in ([], list(CONTROL_ROLES)):
        raise ValueError(f"{', '.join(CONTROL_ROLES)} belong together: name all of them, or host alone.")
    return values


def _host_name(value: str) -> str:
    return value.lower().removesuffix(".")


def _model_address(value: str) -> str:
    """Return the base of a chat-completions endpoint; empty: none. Without a password, which logs would show."""
    if not value:
        return value
    parts = urlsplit(value)
    parts.port  # noqa: B018 - raises ValueError
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("It must begin with http:// or https:// and a name.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("It must not have a user name, query or fragment; the key is a setting of its own.")
    return value.rstrip("/")


# Those of the one machine that has the database.
CONTROL_ROLES = ("control", "files", "edge")
# A machine that runs workspaces.
HOST_ROLE = "host"
CommaSeparated = Annotated[tuple[str, ...], BeforeValidator(_split)]
Places = Annotated[CommaSeparated, AfterValidator(_places)]
Networks = Annotated[CommaSeparated, AfterValidator(_networks)]
Addresses = Annotated[CommaSeparated, AfterValidator(_addresses)]
Resolvers = Annotated[CommaSeparated, AfterValidator(_resolvers)]
Labels = Annotated[CommaSeparated, AfterValidator(_labels)]
ModelAddress = Annotated[str, AfterValidator(_model_address)]
HostAddress = Annotated[str, AfterValidator(_host_address)]
Roles = Annotated[CommaSeparated, AfterValidator(_roles)]
HostName = Annotated[str, AfterValidator(_host_name)]
AbsolutePath = Annotated[Path, AfterValidator(Path.resolve)]
