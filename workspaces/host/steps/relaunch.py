"""Starting a machine again as it was, after a step that changed nothing failed."""

from __future__ import annotations

from django.utils import timezone

from vmbackend.errors import BackendError
from workspaces.audit import record
from workspaces.host.context import Context
from workspaces.host.steps.create import define_machine, ensure_image, wait_for_guest
from workspaces.host.steps.power import record_start


def relaunch_unchanged(context: Context) -> bool:
    """The machine as it was, started once more after a step that changed nothing failed."""
    try:
        ensure_image(context)
        define_machine(context)
        context.driver.start(context.workspace.pk)
        wait_for_guest(context)
    except BackendError as exc:
        record(context.workspace, "relaunch_failed", exc.message)
        return False
    record_start(context.workspace, timezone.now())
    return True
