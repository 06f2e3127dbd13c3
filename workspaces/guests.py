"""Reaching a workspace's guest from the API: its address, and guest errors as the caller sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vmbackend import errors as backend
from vmbackend.guest.session import GuestAddress
from workspaces import errors
from workspaces.models import Workspace
from workspaces.states import Status


def address_of(workspace: Workspace) -> GuestAddress:
    """Where the guest's control port is. Raises VmNotRunning unless the workspace is running."""
    if workspace.status != Status.RUNNING:
        raise errors.VmNotRunning(
            f"The workspace is {workspace.status}; it must be running.", details={"status": workspace.status}
        )
    return GuestAddress(workspace.pk, workspace.ip or "", workspace.control_port, workspace.ssh_host_key)


@contextmanager
def guest_errors() -> Iterator[None]:
    """The one translation of guest failures for callers."""
    try:
        yield
    except backend.GuestPathNotFound as exc:
        raise errors.PathNotFound(exc.sentence) from exc
    except backend.GuestPathInvalid as exc:
        raise errors.PathInvalid(exc.sentence) from exc
    except backend.GuestDiskFull as exc:
        raise errors.GuestDiskFull(exc.sentence) from exc
    except backend.GuestCommandInvalid as exc:
        raise errors.CommandInvalid(exc.sentence) from exc
    except backend.BackendError as exc:
        raise errors.GuestUnreachable(exc.sentence) from exc
