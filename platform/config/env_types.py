"""Types of settings that are more than a number or a text (config/env.py)."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated

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
