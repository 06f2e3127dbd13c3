"""SSH of a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class SshResponse(TypedDict):
    """Answer, or a part of one, of `ssh.get`."""

    ssh_enabled: bool
    connection: SshConnection | None
    ssh: Ssh


class SshConnection(TypedDict):
    """Answer, or a part of one, of `ssh.get`."""

    user: str
    host: str
    port: int
    command: str


class Ssh(TypedDict):
    """Answer, or a part of one, of `ssh.get`."""

    ssh_enabled: bool
    ssh_id: str
    host: str | None
    port: int
    user: str
    host_key: str | None
    keys: list[SshKey]


class SshKey(TypedDict):
    """Answer, or a part of one, of `ssh.get`."""

    fingerprint: str
    type: str
    comment: str


class SshChangedResponse(TypedDict):
    """Answer, or a part of one, of `ssh.enable`."""

    ssh_enabled: bool
    connection: SshConnection | None
    ssh: SshChanged
    accepted: NotRequired[bool]


class SshChanged(TypedDict):
    """Answer, or a part of one, of `ssh.enable`."""

    ssh_enabled: bool
    ssh_id: str
    host: str | None
    port: int
    user: str
    host_key: str | None
    keys: list[SshKey]
    applied: bool
    problem: str | None


class KeyRequest(TypedDict):
    """Body, or a part of it, of `ssh.change_key`."""

    public_key: str
    remove: NotRequired[bool]
