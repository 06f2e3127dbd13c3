"""The routes of workspaces, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from django.db.models import Model

from accounts.scopes import Scope
from tests.callers import Caller
from tests.route import ACCOUNT, BILLING, NAMESPACE, Route, braced
from tests.workspaces.rows import make_workspace, port_link, snapshot_row
from workspaces.runtime.urls import LEVEL
from workspaces.states import Status

W = "workspace/{workspace_id}"
SIZES = ("cpus", "memory_mb", "disk_size_mb", "vcpus", "ram_mb", "disk_mb")
ROUTES = [
    Route("POST", "workspace", scopes=frozenset({ACCOUNT, NAMESPACE}), reads=True, fields=SIZES),
    Route("GET", "workspace"),
    Route("GET", "workspace/quota", scopes=frozenset({ACCOUNT, NAMESPACE})),
    Route("GET", "workspace/estimate", scopes=frozenset({ACCOUNT, NAMESPACE})),
    Route("GET", "workspace/images", scopes=frozenset(Scope)),
    Route("GET", W),
    Route("PUT", W, reads=True),
    Route("DELETE", W),
    Route("GET", f"{W}/details"),
    Route("POST", f"{W}/provisioning/retry"),
    Route("POST", f"{W}/start", reads=True),
    Route("POST", f"{W}/stop"),
    Route("POST", f"{W}/restart"),
    Route("POST", f"{W}/pause"),
    Route("POST", f"{W}/resume"),
    Route("POST", f"{W}/sleep"),
    Route("POST", f"{W}/reinstall"),
    Route("POST", f"{W}/snapshot", reads=True),
    Route("GET", f"{W}/snapshots"),
    Route("POST", f"{W}/restore", reads=True),
    Route("POST", f"{W}/fork", scopes=frozenset({ACCOUNT, NAMESPACE}), reads=True),
    Route("GET", "snapshots"),
    Route("GET", "snapshots/{snapshot_id}"),
    Route("PATCH", "snapshots/{snapshot_id}", reads=True),
    Route("DELETE", "snapshots/{snapshot_id}"),
    Route("GET", f"{W}/lifecycle"),
    Route("DELETE", f"{W}/lifecycle"),
    Route("PUT", f"{W}/lifecycle/idle", reads=True),
    Route("POST", f"{W}/lifecycle/permanent", reads=True),
    Route("POST", f"{W}/lifecycle/temporary", reads=True),
    Route("PUT", f"{W}/lifecycle/ttl", reads=True),
    Route("POST", f"{W}/ping", reads=True),
    Route("GET", f"{W}/metadata"),
    Route("PUT", f"{W}/metadata", reads=True),
    Route("PATCH", f"{W}/metadata", reads=True),
    Route("GET", f"{W}/resources"),
    Route("PUT", f"{W}/resources", reads=True),
    Route("PATCH", f"{W}/resources", reads=True),
    Route("PUT", f"{W}/overlay/resize", reads=True),
    Route("GET", "workspace/usage"),
    Route("GET", "workspace/activity"),
    Route("GET", f"{W}/usage"),
    Route("DELETE", f"{W}/usage"),
    Route("GET", f"{W}/usage/totals"),
    Route("GET", f"{W}/usage/credits/chart"),
    Route("POST", f"{W}/usage/tracking/start"),
    Route("POST", f"{W}/usage/tracking/stop"),
    Route("GET", f"{W}/stats"),
    Route("GET", f"{W}/info"),
    Route("GET", f"{W}/config"),
    Route("GET", f"{W}/network"),
    Route("PUT", f"{W}/network", reads=True),
    Route("PATCH", f"{W}/network", reads=True),
    Route("GET", f"{W}/public-access"),
    Route("POST", f"{W}/public-access", reads=True),
    Route("PATCH", f"{W}/public-access/{{port}}", reads=True),
    Route("DELETE", f"{W}/public-access/{{port}}"),
    Route("GET", f"{W}/public-access/{{port}}/links"),
    Route("POST", f"{W}/public-access/{{port}}/links", reads=True),
    Route("DELETE", f"{W}/public-access/{{port}}/links/{{link_id}}"),
    Route("GET", f"{W}/domain"),
    Route("POST", f"{W}/domain", reads=True),
    Route("DELETE", f"{W}/domain"),
    Route("POST", f"{W}/domain/check", reads=True),
    Route("POST", f"{W}/domain/ssl/renew"),
    Route("GET", f"{W}/runtime-api-access"),
    Route("POST", f"{W}/runtime-api-access/enable"),
    Route("POST", f"{W}/runtime-api-access/disable"),
    Route("GET", f"{W}/runtime-api-access/token"),
    Route("POST", f"{W}/runtime-api-access/token"),
    Route("GET", f"{W}/runtime-api-access/token/raw"),
    Route("GET", f"{W}/ssh"),
    Route("POST", f"{W}/ssh/enable"),
    Route("POST", f"{W}/ssh/disable"),
    Route("POST", f"{W}/ssh/key", reads=True),
    Route("POST", f"{W}/exec", reads=True),
    Route("POST", f"{W}/exec/{{stdin_key}}/input"),
    Route("GET", f"{W}/overlay"),
    Route("GET", f"{W}/overlay/files"),
    Route("POST", f"{W}/overlay/files", reads=True),
    Route("GET", f"{W}/overlay/usage"),
    Route("POST", f"{W}/overlay/sync"),
    Route("GET", f"{W}/logs"),
    Route("DELETE", f"{W}/logs"),
    Route("GET", f"{W}/logs/list"),
    Route("GET", f"{W}/logs/file/{{name}}"),
    Route("GET", f"{W}/logs/stream/{{source}}"),
    Route("GET", f"{W}/stats/stream"),
    Route("GET", f"{W}/workloads"),
    Route("POST", f"{W}/workloads", reads=True),
    Route("DELETE", f"{W}/workloads"),
    Route("GET", f"{W}/workloads/stats/stream"),
    Route("GET", f"{W}/workloads/{{workload_id}}"),
    Route("PUT", f"{W}/workloads/{{workload_id}}", reads=True),
    Route("PATCH", f"{W}/workloads/{{workload_id}}", reads=True),
    Route("DELETE", f"{W}/workloads/{{workload_id}}"),
    Route("GET", f"{W}/workloads/{{workload_id}}/status"),
    Route("GET", f"{W}/workloads/{{workload_id}}/logs"),
    Route("GET", f"{W}/workloads/{{workload_id}}/logs/stream"),
    Route("GET", f"{W}/workloads/{{workload_id}}/stats"),
    Route("POST", f"{W}/workloads/{{workload_id}}/start"),
    Route("POST", f"{W}/workloads/{{workload_id}}/stop"),
    Route("GET", "namespaces/{namespace_id}/usage-units", scopes=frozenset({ACCOUNT, NAMESPACE, BILLING})),
]
# The requests of the edge, which carry a secret (tests/workspaces/network/test_edge.py).
NOT_WALKED = {"internal/edge/port", "internal/edge/wake"}
# The runtime, whose credential is its token (tests/workspaces/runtime/test_tokens.py).
NOT_WALKED |= {
    f"r/{place}{braced(str(pattern.pattern))}"
    for place in (
        "",
        "runtimes/default/",
        "runtimes/local/",
        "{named_id}/",
        "{named_id}/runtimes/default/",
        "{named_id}/runtimes/local/",
    )
    for pattern in LEVEL
}
DOCUMENTED = """
GET /namespaces/:id/usage-units
POST /workspace
POST /workspace/:id/provisioning/retry
GET /workspace
GET /workspace/:workspaceId
GET /workspace/:workspaceId/details
PUT /workspace/:workspaceId
DELETE /workspace/:workspaceId
GET /workspace/quota
GET /workspace/:workspaceId/logs
DELETE /workspace/:workspaceId/logs
GET /workspace/:workspaceId/logs/list
GET /workspace/:workspaceId/logs/file/:name
GET /workspace/:workspaceId/logs/stream/boot
GET /workspace/:workspaceId/logs/stream/cmd
GET /workspace/:workspaceId/stats/stream
GET /workspace/:workspaceId/overlay
GET /workspace/:workspaceId/overlay/files
POST /workspace/:workspaceId/overlay/files
GET /workspace/:workspaceId/overlay/usage
POST /workspace/:workspaceId/overlay/sync
POST /workspace/:workspaceId/start
POST /workspace/:workspaceId/stop
POST /workspace/:workspaceId/restart
POST /workspace/:workspaceId/pause
POST /workspace/:workspaceId/resume
POST /workspace/:workspaceId/reinstall
GET /workspace/:workspaceId/lifecycle
DELETE /workspace/:workspaceId/lifecycle
PUT /workspace/:workspaceId/lifecycle/idle
POST /workspace/:workspaceId/lifecycle/permanent
POST /workspace/:workspaceId/lifecycle/temporary
PUT /workspace/:workspaceId/lifecycle/ttl
POST /workspace/:workspaceId/ping
GET /workspace/images
GET /workspace/:workspaceId/metadata
PUT /workspace/:workspaceId/metadata
PATCH /workspace/:workspaceId/metadata
GET /workspace/:workspaceId/resources
PUT /workspace/:workspaceId/resources
PATCH /workspace/:workspaceId/resources
PUT /workspace/:workspaceId/overlay/resize
GET /workspace/usage
GET /workspace/activity
GET /workspace/:workspaceId/usage
GET /workspace/:workspaceId/usage/totals
GET /workspace/:workspaceId/usage/credits/chart
POST /workspace/:workspaceId/usage/tracking/start
POST /workspace/:workspaceId/usage/tracking/stop
DELETE /workspace/:workspaceId/usage
GET /workspace/:workspaceId/stats
GET /workspace/:workspaceId/info
GET /workspace/:workspaceId/config
"""

VALUES = {
    "name": "boot.log", "source": "boot", "port": "8080", "workload_id": "web", "stdin_key": "key-of-this-input",
    "task_id": "1", "file_link": "of-no-file",
}  # fmt: skip


def make_rows(owner: Caller) -> dict[str, Model]:
    """A workspace that failed, on no host, so that no accepted request waits; a snapshot of it, and a link to a private
    port of it.
    """
    workspace = make_workspace(owner.account, status=Status.FAILED, slug="the-workspace")
    snapshot = snapshot_row(workspace)
    snapshot.save()
    return {"workspace_id": workspace, "snapshot_id": snapshot, "link_id": port_link(workspace)}
