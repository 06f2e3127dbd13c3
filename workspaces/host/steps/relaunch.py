"""Starting a machine again as it was, after a step that changed nothing failed."""

from __future__ import annotations

from django.utils import timezone

from vmbackend.errors import BackendError
from workspaces.audit import record
from workspaces.host.context import Context
from workspaces.host.steps.create import ensure_image, prepare, wait_for_guest
from workspaces.host.steps.power import note_start


def runs_again(context: Context) -> bool:
    """The machine as it was, started once more after a step that changed nothing failed."""
    try:
        ensure_image(context)
        prepare(context)
        context.driver.start(context.workspace.pk)
        wait_for_guest(context)
    except BackendError as exc:
        record(context.workspace, "relaunch_failed", exc.sentence)
        return False
    note_start(context.workspace, timezone.now())
    return True
