"""Kept orphans of this host that staff put back or remove (`workspaces.kept_orphans`); in vmhost only.

A reply is JSON: `done`, the names of the orphans, or `refused` with a code and a sentence.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from django.db import transaction

from vmbackend import services as hosts
from vmbackend.driver import Driver
from vmbackend.errors import BackendError, BackendUnavailable, InvalidMachineState, MachineNotFound
from vmbackend.orphans import KeptOrphan
from workspaces.host.ownership import expire_orphans, is_foreign, orphan_changes
from workspaces.models import Workspace
from workspaces.operations import queue
from workspaces.rows import find_and_lock

if TYPE_CHECKING:
    from workspaces.host.runtime import HostRuntime

logger = logging.getLogger(__name__)


def put_back_reply(runtime: HostRuntime, workspace_id: str, epoch: int, ip: str) -> bytes:
    """Put the workspace's newest orphan back under this epoch and address; return the reply.

    Its row has another epoch yet. If it never gets this one, reconcile sets the machine aside as any former copy.
    """

    def put_back() -> list[str]:
        with orphan_changes, transaction.atomic():
            return _put_back(runtime, workspace_id, epoch, ip)

    return _reply(runtime, put_back)


def removal_reply(runtime: HostRuntime, workspace_id: str, name: str) -> bytes:
    """Remove the workspace's orphans, or that of this name; return the reply."""
    return _reply(runtime, lambda: _remove(runtime, workspace_id, name))


def _reply(runtime: HostRuntime, carry_out: Callable[[], list[str]]) -> bytes:
    try:
        content: dict[str, object] = {"done": carry_out()}
        expire_orphans(runtime)  # what is left is shown to staff
    except BackendError as exc:
        logger.warning("orphans were not changed: %s", exc.message)
        content = {"refused": exc.code, "message": exc.message}
    return json.dumps(content).encode()


def _put_back(runtime: HostRuntime, workspace_id: str, epoch: int, ip: str) -> list[str]:
    if hosts.is_host_gone(runtime.host_id):
        raise BackendUnavailable("The host was given up: activate it first.")
    _make_place(runtime, workspace_id, epoch)
    if runtime.driver.epoch_of(workspace_id) == epoch:  # by an earlier call, whose reply was lost
        return []
    found = _orphans_of(runtime.driver, workspace_id)
    if not found:
        raise MachineNotFound("The host keeps no files of this workspace.")
    newest = max(found, key=lambda orphan: (orphan.epoch, orphan.kept_since))
    runtime.driver.put_back(newest.name, epoch, ip)
    return [newest.name]


def _make_place(runtime: HostRuntime, workspace_id: str, epoch: int) -> None:
    """Set a former copy aside that is here still. Raise InvalidMachineState if the machine here is the workspace's."""
    workspace = find_and_lock(workspace_id)  # no operation begins while it is locked; another host's is not seen here
    is_here = workspace is not None and workspace.host_id == runtime.host_id
    if workspace is not None and is_here and queue.live_operation(workspace):
        raise InvalidMachineState("An operation on the workspace is in progress.")
    there = runtime.driver.epoch_of(workspace_id)
    if there in (None, epoch):
        return
    if workspace is not None and is_here and not is_foreign(there, workspace):
        raise InvalidMachineState("The workspace has a machine on this host.")
    runtime.driver.set_aside(workspace_id)


def _remove(runtime: HostRuntime, workspace_id: str, name: str) -> list[str]:
    """Remove them, but not what is the workspace's disk after all (`ownership.take_back`)."""
    row = Workspace.objects.filter(pk=workspace_id, host_id=runtime.host_id).values_list("epoch", flat=True).first()
    found = [orphan for orphan in _orphans_of(runtime.driver, workspace_id) if name in ("", orphan.name)]
    wanted = [orphan.name for orphan in found if orphan.epoch != row]
    if not wanted:
        raise MachineNotFound("The host keeps no files of this workspace.")
    for each in wanted:
        runtime.driver.remove_orphan(each)
    return wanted


def _orphans_of(driver: Driver, workspace_id: str) -> list[KeptOrphan]:
    return [orphan for orphan in driver.kept_orphans() if orphan.machine_id == workspace_id]
