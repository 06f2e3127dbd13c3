"""The address for logs inside a guest."""

from __future__ import annotations

from vmbackend.guest.session import GuestAddress
from workspaces.errors import VmNotRunning
from workspaces.guests import address_of
from workspaces.models import Workspace


def guest_log_address(workspace: Workspace) -> GuestAddress:
    """Return the guest's address; this counts as a use. Raise VmNotRunning with a message on logs."""
    try:
        return address_of(workspace)
    except VmNotRunning as exc:
        raise VmNotRunning(
            f"The workspace is {workspace.status}. The logs of its programs lie on its own disk and can be read "
            "while it runs; the console's (`boot`) can be read at any time.",
            details=exc.details,
        ) from exc
