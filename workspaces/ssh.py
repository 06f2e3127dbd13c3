"""SSH access for a workspace's users, by keys only: first the row, then the running guest.

Each change raises VmMissing (destroyed) and NotFound (deleted); nothing has changed then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from django.db import transaction

from common.errors import DomainError, NotFound
from vmbackend.guest import records
from workspaces.errors import SshKeyLimit, SshKeyNotFound, VmMissing
from workspaces.guest_changes import GUEST_REACHABLE, apply_until_current, current_copy
from workspaces.guests import configure_ssh
from workspaces.host_away import LATER, is_away
from workspaces.models import Workspace
from workspaces.rows import lock_current, update_row, update_unless_changed, write_columns
from workspaces.states import Status

if TYPE_CHECKING:
    from asyncssh import SSHKey

PRIVATE = "This is a private key: do not share it; send the public one."
MIN_RSA_BITS = 2048


class KeyRefused(ValueError):
    """Refusal of a key. The caller reads its sentence, which never contains the key's text."""


def public_key(text: str) -> str:
    """Return one OpenSSH public key line, stripped. Raise KeyRefused."""
    if "PRIVATE KEY" in text:
        raise KeyRefused(PRIVATE)
    try:
        line = records.check_ssh_key(text)
        key = parsed(line)
    except (ValueError, OverflowError) as exc:
        raise KeyRefused("Give one OpenSSH public key line: its type, the key and a comment.") from exc
    # dropbear itself accepts smaller ones.
    if isinstance(key.pyca_key, RSAPublicKey) and key.pyca_key.key_size < MIN_RSA_BITS:
        raise KeyRefused(f"An RSA key must have at least {MIN_RSA_BITS} bits.")
    return line


def parsed(line: str) -> SSHKey:
    """Parse a key line. Raise ValueError, and OverflowError for a negative number in an RSA key."""
    # Not imported at the top: of the workers that load this module, only one renews keys of guests.
    from asyncssh import import_public_key

    return import_public_key(line.encode())


def fingerprint(line: str) -> str:
    """Return `SHA256:...`, as ssh-keygen shows it; without the comment."""
    return parsed(line).get_fingerprint()


class PublicKey(NamedTuple):
    """An authorized key as responses show it."""

    fingerprint: str
    type: str
    comment: str


def described_key(line: str) -> PublicKey:
    """Return the parts of a key's line that responses show."""
    kind, _, rest = line.partition(" ")
    return PublicKey(fingerprint(line), kind, rest.partition(" ")[2].strip())


@dataclass(frozen=True, slots=True)
class SshAccess:
    """Access by a row with every column. `problem`: why it is not in effect in the guest yet."""

    workspace: Workspace
    problem: str | None = None
    port: int = 22
    user: str = "root"

    @property
    def keys(self) -> list[PublicKey]:
        return [described_key(line) for line in self.workspace.ssh_keys]

    @property
    def applied(self) -> bool:
        return self.problem is None

    @property
    def connection(self) -> SshAccess | None:
        """Return itself if one can connect: SSH is on and the machine has an address."""
        return self if self.workspace.ssh_enabled and self.workspace.ip else None

    @property
    def command(self) -> str:
        return f"ssh {self.user}@{self.workspace.ip}"


logger = logging.getLogger(__name__)

MAX_KEYS = 32
COLUMNS = ("status", "ssh_enabled", "ssh_keys", "ssh_stale", "ip", "ssh_host_key", "control_port")


@transaction.atomic
def ssh_switch(*, workspace: Workspace, actor: str, enabled: bool) -> Workspace:
    """Enable or disable the SSH server in the row; `apply_in_guest` makes it effective."""
    _lock(workspace)
    if workspace.ssh_enabled != enabled:
        word = "enabled" if enabled else "disabled"
        _write(workspace, f"ssh_{word}", f"SSH access was {word}.", actor, ssh_enabled=enabled)
    return workspace


@transaction.atomic
def ssh_key_add(*, workspace: Workspace, actor: str, line: str) -> Workspace:
    """Authorize a key (a valid line); for an authorized one only the comment changes. Raise SshKeyLimit."""
    _lock(workspace)
    shown = fingerprint(line)
    others = keys_without(workspace.ssh_keys, shown)
    if len(others) >= MAX_KEYS:
        raise SshKeyLimit(details={"current": len(others), "max": MAX_KEYS})
    if line not in workspace.ssh_keys:
        _write(workspace, "ssh_key_added", f"The SSH key {shown} was added.", actor, ssh_keys=[*others, line])
    return workspace


@transaction.atomic
def ssh_key_remove(*, workspace: Workspace, actor: str, key: str) -> Workspace:
    """Revoke a key, by its fingerprint; its open connections stay. Raise SshKeyNotFound."""
    _lock(workspace)
    others = keys_without(workspace.ssh_keys, key)
    if len(others) == len(workspace.ssh_keys):
        raise SshKeyNotFound
    return _write(workspace, "ssh_key_removed", f"The SSH key {key} was removed.", actor, ssh_keys=others)


def keys_without(lines: Sequence[str], key: str) -> list[str]:
    """Return the lines without the line that has that fingerprint."""
    return [line for line in lines if fingerprint(line) != key]


def apply_in_guest(workspace: Workspace) -> str | None:
    """Configure a running guest as the row says, outside any transaction. Return None, or why it applies later.

    A change that could not be applied is applied by the next resume, wake or start, or by the host within some minutes
    (`host.guest_renewals`).
    """
    if workspace.status != Status.RUNNING:
        return f"The workspace is {workspace.status}; it applies at the next start."
    if is_away(workspace):
        update_row(workspace, ssh_stale=True)
        return LATER
    try:
        if _apply(workspace, clears=not workspace.ssh_was_stale):
            return None
    except NotFound:  # it was deleted while the guest was asked
        raise
    except DomainError as exc:
        logger.warning("the SSH access of %s is not applied yet: %s", workspace.pk, exc.message)
        return f"{exc.message} It is tried again, at the latest at the next start."
    return "The access was changed at the same time; it is applied within minutes, or at the next start."


def _apply(workspace: Workspace, *, clears: bool = True, **limits: Any) -> bool:
    """Do what `apply_until_current` does. Raise GuestUnreachable, NotFound."""
    return apply_until_current(
        workspace, lambda: _apply_once(workspace, clears), lambda: update_row(workspace, ssh_stale=True), **limits
    )


def _apply_once(workspace: Workspace, clears: bool) -> bool:
    """Configure the guest once. Return False if the row has changed since it was read; the instance has its present
    columns then. Without `clears` the row stays marked as stale.

    Raise GuestUnreachable, NotFound.
    """
    before = _access(workspace)
    configure_ssh(workspace)
    try:
        workspace.refresh_from_db(fields=["ssh_enabled", "ssh_keys", "status", "updated_at"])
    except Workspace.DoesNotExist as exc:
        raise NotFound from exc
    if _access(workspace) != before:
        return False
    if clears:
        mark_access_applied(workspace)
    return True


def mark_access_applied(workspace: Workspace) -> None:
    """Clear `ssh_stale`, unless the row has changed since the guest was configured."""
    update_unless_changed(workspace, ("ssh_enabled", "ssh_keys", "updated_at"), ssh_stale=False)


def renew_access(row: Workspace, until: float) -> str:
    """Apply changes that a running guest missed, until the time `until` (`time.monotonic`). Return an empty text, or
    why they wait.

    For a guest that has just started, resumed or woken, and for one that runs and did not answer before.
    """
    known = Workspace.objects.filter(pk=row.pk, ssh_stale=True, status__in=GUEST_REACHABLE)
    columns = known.values("ssh_enabled", "ssh_keys", "status", "updated_at").first()
    if columns is None:
        return ""
    try:
        applied = _apply(current_copy(row, **columns), reachable=GUEST_REACHABLE, until=until)
    except NotFound:
        return ""  # it was deleted while the guest was asked
    except DomainError as exc:
        return f"The change of SSH access waits: {exc.message}"
    return "" if applied else "The change of SSH access waits: it is being changed."


def _access(workspace: Workspace) -> tuple[bool, list[str], datetime]:
    """Return the access with the time of its last change: keys may be the same again as before, while the guest has
    those in between.
    """
    return workspace.ssh_enabled, list(workspace.ssh_keys), workspace.updated_at


def _lock(workspace: Workspace) -> None:
    """Exclude concurrent changes of its keys until this transaction ends. Raise NotFound, VmMissing."""
    lock_current(workspace, COLUMNS)
    workspace.ssh_was_stale = workspace.ssh_stale
    if workspace.status == Status.DESTROYED:
        raise VmMissing


def _write(workspace: Workspace, event: str, detail: str, actor: str, **columns: Any) -> Workspace:
    return write_columns(workspace, event, detail, actor, ssh_stale=True, **columns)
