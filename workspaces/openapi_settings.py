"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup
from vmbackend.driver import WorkloadRestart

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "WorkspaceStatus": "workspaces.states.Status",
    "SnapshotStatus": "workspaces.models.snapshot.SnapshotStatus",
    # The values of vmbackend.host_states.
    "HostState": [(state, state) for state in ("active", "draining", "maintenance", "gone", "unreachable")],
    "RestartPolicy": "workspaces.models.workspace.RestartPolicy",
    "TaskStatus": [(status, status) for status in ("pending", "running", "exited", "failed")],
    # The values of workspaces.commands.output.
    "TextEncoding": [("utf-8", "utf-8"), ("base64", "base64")],
    "WorkloadRestart": [(policy.value, policy.value) for policy in WorkloadRestart],
}
_W = r"/workspace/\{workspace_id\}"
# The first group that matches an operation's path counts.
GROUPS = [
    ApiGroup("Resources", "Processors, memory and disk of a workspace.", rf"{_W}/resources"),
    ApiGroup(
        "Usage and activity",
        "Usage, charges and activity.",
        rf"/workspace/(usage|activity)|{_W}/usage(/.*)?",
    ),
    ApiGroup(
        "Metrics", "Statistics of running workspaces, once or as an event stream.", rf"{_W}/(stats(/.*)?|info|config)"
    ),
    ApiGroup("Logs", "The console and the programs of a workspace.", rf"{_W}/logs(/.*)?"),
    ApiGroup("Filesystem", "Files and the disk of a workspace.", rf"{_W}/overlay(/.*)?"),
    ApiGroup("Images", "The catalog of images.", r"/workspace/images"),
    ApiGroup("Metadata", "Values that a caller keeps with a workspace.", rf"{_W}/metadata"),
    ApiGroup(
        "Lifecycle and power",
        "Start, stop, pause, sleep, reinstall; idle time and time to live.",
        rf"{_W}/(start|stop|restart|pause|resume|sleep|reinstall|ping|lifecycle(/.*)?)",
    ),
    ApiGroup(
        "Snapshots",
        "Copies of a workspace's disk and memory; restores and forks.",
        rf"/snapshots(/.*)?|{_W}/(snapshots?|restore|fork)",
    ),
    ApiGroup("Workloads", "Programs of a running workspace, changed while it runs.", rf"{_W}/workloads(/.*)?"),
    ApiGroup("Commands", "Commands in a running workspace.", rf"{_W}/exec(/.*)?"),
    ApiGroup(
        "Runtime access", "The address and the tokens of the inside of a workspace.", rf"{_W}/runtime-api-access(/.*)?"
    ),
    ApiGroup("Runtime", "Everything inside a running workspace, with the token of its runtime.", r"/r/.*"),
    ApiGroup("SSH", "Access by SSH.", rf"{_W}/ssh(/.*)?"),
    ApiGroup(
        "Network",
        "Network policies, public ports and custom domains of workspaces.",
        rf"{_W}/(network|public-access|domain)(/.*)?",
    ),
    ApiGroup("Workspaces", "Create, read, list, change and delete workspaces.", r"/workspace(/.*)?"),
]
