"""Types of settings that are more than a number or a text (config/env.py)."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from outbound.errors import OutboundError
from outbound.urls import place_of, server_place


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


def _host_name(value: str) -> str:
    return value.lower().removesuffix(".")


CommaSeparated = Annotated[tuple[str, ...], BeforeValidator(_split)]
Places = Annotated[CommaSeparated, AfterValidator(_places)]
Networks = Annotated[CommaSeparated, AfterValidator(_networks)]
Addresses = Annotated[CommaSeparated, AfterValidator(_addresses)]
Resolvers = Annotated[CommaSeparated, AfterValidator(_resolvers)]
HostName = Annotated[str, AfterValidator(_host_name)]
AbsolutePath = Annotated[Path, AfterValidator(Path.resolve)]

# Empty, they would be the current folder, every address of the host, no name at all.
EMPTY_IS_UNSET = frozenset(
    {
        *("state", "short_state", "machines_dir", "cache_dir", "kit_dir", "images_dir", "registry_auth_file", "faults"),
        *(
            "bind",
            "base_url",
            "public_url",
            "sandbox_url",
            "pages_url",
            "cdn_url",
            "database_url",
            "redis_url",
            "libvirt_uri",
            "host_name",
        ),
        *("default_image", "edge_host"),
    }
)

LOOPBACK = "127.0.0.1"
_WILDCARDS = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound


def host_name_of(_: dict[str, Any]) -> str:
    """The machine's name, as a default."""
    name = socket.gethostname().split(".")[0].lower()
    return re.sub(r"[^a-z0-9-]", "-", name)[:40] or "host"


def base_url_of(data: dict[str, Any]) -> str:
    """The default of the base URL: bind and port."""
    name = LOOPBACK if data["bind"] in _WILDCARDS else data["bind"]
    return f"http://[{name}]:{data['port']}" if ":" in name else f"http://{name}:{data['port']}"
