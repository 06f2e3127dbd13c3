"""Errors of joins and of what staff do with hosts."""

from __future__ import annotations

from typing import Any, ClassVar

from common.errors import DomainError, Unauthorized


class TokenInvalid(Unauthorized):
    """One sentence for all: a stranger learns nothing of tokens."""

    code = "token_invalid"
    message = "This token is unknown, has expired, or was used by another machine: make another one."

    @property
    def name(self) -> str:
        return self.code


class MachineJoined(DomainError):
    code = "machine_joined"
    status = 409
    message = "This machine is a host already."
    example_details: ClassVar[dict[str, Any] | None] = {"host": "two"}


class NameTaken(DomainError):
    code = "name_taken"
    status = 409
    message = "Another host has this name."
    example_details: ClassVar[dict[str, Any] | None] = {"name": "two"}


class SubnetOverlaps(DomainError):
    code = "subnet_overlaps"
    status = 409
    message = "The networks of this machine overlap those of another host."
    example_details: ClassVar[dict[str, Any] | None] = {"with": "10.131.0.0/20", "host": "one"}


class ClockOff(DomainError):
    code = "clock_off"
    status = 400
    message = "The clock of this machine is wrong."
    example_details: ClassVar[dict[str, Any] | None] = {"seconds": 300.0}


class ProtocolUnsupported(DomainError):
    code = "protocol_unsupported"
    status = 400
    message = "This machine has another version of the platform than the control machine."
    example_details: ClassVar[dict[str, Any] | None] = {"wanted": 1}


class HostInUse(DomainError):
    code = "host_in_use"
    status = 409
    message = "The host has workspaces: move or delete them first."
    example_details: ClassVar[dict[str, Any] | None] = {"workspaces": 3}


class NotOpen(DomainError):
    code = "conflict"
    status = 409
    message = "No other machine can reach this instance yet: run `make host-token` on the control machine once."
