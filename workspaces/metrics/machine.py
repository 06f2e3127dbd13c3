"""State of a workspace's machine, by a call to its host: only vmhost there may use the hypervisor."""

from __future__ import annotations

import json
from typing import Any

from common.errors import VMUnavailable
from vmbackend.driver import MachineState
from workspaces.host_rpc import call
from workspaces.models import Workspace

TASK = "workspaces.tasks.answer_machine_info"


def machine_info(workspace: Workspace) -> dict[str, Any]:
    """Return state, definition and counters from the host; `absent` without a host. Raise VMUnavailable."""
    if workspace.host is None:
        return {"state": MachineState.ABSENT.value, "machine": None, "counters": None}
    reply: dict[str, Any] = json.loads(call(workspace, TASK))
    if "problem" in reply:
        raise VMUnavailable(reply["problem"])
    return reply
