"""Starting a machine again, unchanged, after a failed step."""

from __future__ import annotations

from django.utils import timezone

from vmbackend.errors import BackendError
from workspaces.audit import record_activity
from workspaces.host.context import Context
from workspaces.host.steps.create import define_machine, ensure_image, launch_machine, wait_for_guest
from workspaces.host.steps.power import record_start


def relaunch_unchanged(context: Context) -> bool:
    """Start the machine again after a step that changed nothing failed. Return False if that fails, too."""
    try:
        ensure_image(context)
        define_machine(context)
        launch_machine(context)
        wait_for_guest(context)
    except BackendError as exc:
        record_activity(context.workspace, "relaunch_failed", exc.message)
        return False
    record_start(context.workspace, timezone.now())
    return True
