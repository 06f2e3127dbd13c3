"""Routes under `/workspace`, and the usage of namespaces.

An identifier is an id or a slug; anything else does not match.
"""

from django.urls import include, path, register_converter

from workspaces.charging.views import UsageUnitsViewSet
from workspaces.commands.views import CommandsViewSet
from workspaces.crud.views import WorkspaceViewSet
from workspaces.custom_domains.views import WorkspaceDomainViewSet
from workspaces.files.views import FileContentViewSet, FilesViewSet
from workspaces.images.views import CatalogViewSet
from workspaces.lifecycle.views import LifecycleViewSet
from workspaces.logs.views import LogFileViewSet, LogsViewSet
from workspaces.metadata import MetadataViewSet
from workspaces.metrics.views import MetricsViewSet
from workspaces.network.views import NetworkViewSet, PortLinkViewSet, PublicAccessViewSet
from workspaces.power_views import PowerViewSet
from workspaces.reinstall import ReinstallViewSet
from workspaces.resources.views import ResourcesViewSet
from workspaces.runtime.access_views import RuntimeAccessViewSet
from workspaces.snapshots.views import SnapshotViewSet, WorkspaceSnapshotsViewSet
from workspaces.ssh_views import SshViewSet
from workspaces.streams.views import StreamsViewSet
from workspaces.usage.views import AllUsageViewSet, UsageViewSet
from workspaces.workload_changes.views import WorkloadStatsViewSet, WorkloadsViewSet


class Identifier:
    regex = r"[A-Za-z0-9_-]{1,128}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


class NamedWorkspace:
    """A workspace's id in the address of its runtime: as a label of a host name it has a hyphen, in any case."""

    regex = r"[Ww][Ss][_-][A-Za-z0-9]{1,32}"

    def to_python(self, value: str) -> str:
        return value.lower().replace("-", "_")

    def to_url(self, value: str) -> str:
        return value


register_converter(Identifier, "ws")
register_converter(NamedWorkspace, "named_ws")

workspace = WorkspaceViewSet.as_view
power = PowerViewSet.as_view
lifecycle = LifecycleViewSet.as_view
metadata = MetadataViewSet.as_view
metrics = MetricsViewSet.as_view
resources = ResourcesViewSet.as_view
ssh = SshViewSet.as_view
runtime = RuntimeAccessViewSet.as_view
usage = UsageViewSet.as_view
network = NetworkViewSet.as_view
public = PublicAccessViewSet.as_view
link = PortLinkViewSet.as_view
domain = WorkspaceDomainViewSet.as_view
workloads = WorkloadsViewSet.as_view
kept = WorkspaceSnapshotsViewSet.as_view
snapshot = SnapshotViewSet.as_view
urlpatterns = [
    path("namespaces/<slug:namespace_id>/usage-units", UsageUnitsViewSet.as_view({"get": "list"})),
    # First, because each request to a public port that is not in the route cache asks here.
    path("internal/edge/", include("workspaces.edge_auth.urls")),
    path("r/", include("workspaces.runtime.urls")),
    path("r/<named_ws:named_id>/", include("workspaces.runtime.urls")),
    path("workspace", workspace({"post": "create", "get": "list"})),
    path("workspace/quota", workspace({"get": "quota"})),
    path("workspace/estimate", workspace({"get": "estimate"})),
    path("workspace/images", CatalogViewSet.as_view({"get": "list"})),
    path("workspace/usage", AllUsageViewSet.as_view({"get": "totals"})),
    path("workspace/activity", AllUsageViewSet.as_view({"get": "activity"})),
    path("workspace/<ws:workspace_id>", workspace({"get": "retrieve", "put": "update", "delete": "destroy"})),
    path("workspace/<ws:workspace_id>/details", workspace({"get": "details"})),
    path("workspace/<ws:workspace_id>/provisioning/retry", workspace({"post": "retry"})),
    path("workspace/<ws:workspace_id>/exec", CommandsViewSet.as_view({"post": "execute"})),
    path("workspace/<ws:workspace_id>/exec/<slug:stdin_key>/input", CommandsViewSet.as_view({"post": "write_input"})),
    path("workspace/<ws:workspace_id>/start", power({"post": "start"})),
    path("workspace/<ws:workspace_id>/stop", power({"post": "stop"})),
    path("workspace/<ws:workspace_id>/restart", power({"post": "restart"})),
    path("workspace/<ws:workspace_id>/pause", power({"post": "pause"})),
    path("workspace/<ws:workspace_id>/resume", power({"post": "resume"})),
    path("workspace/<ws:workspace_id>/sleep", lifecycle({"post": "sleep"})),
    path("workspace/<ws:workspace_id>/reinstall", ReinstallViewSet.as_view({"post": "reinstall"})),
    path("workspace/<ws:workspace_id>/snapshot", kept({"post": "create"})),
    path("workspace/<ws:workspace_id>/snapshots", kept({"get": "list"})),
    path("workspace/<ws:workspace_id>/restore", kept({"post": "restore"})),
    path("workspace/<ws:workspace_id>/fork", kept({"post": "fork"})),
    path("snapshots", snapshot({"get": "list"})),
    path("snapshots/<ws:snapshot_id>", snapshot({"get": "retrieve", "patch": "update", "delete": "destroy"})),
    path("workspace/<ws:workspace_id>/lifecycle", lifecycle({"get": "retrieve", "delete": "destroy"})),
    path("workspace/<ws:workspace_id>/lifecycle/idle", lifecycle({"put": "idle"})),
    path("workspace/<ws:workspace_id>/lifecycle/permanent", lifecycle({"post": "permanent"})),
    path("workspace/<ws:workspace_id>/lifecycle/temporary", lifecycle({"post": "temporary"})),
    path("workspace/<ws:workspace_id>/lifecycle/ttl", lifecycle({"put": "ttl"})),
    path("workspace/<ws:workspace_id>/ping", lifecycle({"post": "ping"})),
    path("workspace/<ws:workspace_id>/metadata", metadata({"get": "retrieve", "put": "update", "patch": "update"})),
    path("workspace/<ws:workspace_id>/resources", resources({"get": "retrieve", "put": "update", "patch": "update"})),
    path("workspace/<ws:workspace_id>/overlay/resize", resources({"put": "resize_overlay"})),
    path("workspace/<ws:workspace_id>/network", network({"get": "retrieve", "put": "update", "patch": "update"})),
    path("workspace/<ws:workspace_id>/public-access", public({"get": "list", "post": "create"})),
    path("workspace/<ws:workspace_id>/public-access/<int:port>", public({"patch": "update", "delete": "destroy"})),
    path("workspace/<ws:workspace_id>/public-access/<int:port>/links", link({"get": "list", "post": "create"})),
    path("workspace/<ws:workspace_id>/public-access/<int:port>/links/<ws:link_id>", link({"delete": "destroy"})),
    path("workspace/<ws:workspace_id>/domain", domain({"get": "retrieve", "post": "create", "delete": "destroy"})),
    path("workspace/<ws:workspace_id>/domain/check", domain({"post": "check"})),
    path("workspace/<ws:workspace_id>/domain/ssl/renew", domain({"post": "renew"})),
    path("workspace/<ws:workspace_id>/stats", metrics({"get": "stats"})),
    path("workspace/<ws:workspace_id>/info", metrics({"get": "info"})),
    path("workspace/<ws:workspace_id>/config", metrics({"get": "config"})),
    path("workspace/<ws:workspace_id>/usage", usage({"get": "series", "delete": "destroy"})),
    path("workspace/<ws:workspace_id>/usage/totals", usage({"get": "totals"})),
    path("workspace/<ws:workspace_id>/usage/credits/chart", usage({"get": "chart"})),
    path("workspace/<ws:workspace_id>/usage/tracking/start", usage({"post": "start_tracking"})),
    path("workspace/<ws:workspace_id>/usage/tracking/stop", usage({"post": "stop_tracking"})),
    path("workspace/<ws:workspace_id>/runtime-api-access", runtime({"get": "retrieve"})),
    path("workspace/<ws:workspace_id>/runtime-api-access/enable", runtime({"post": "enable"})),
    path("workspace/<ws:workspace_id>/runtime-api-access/disable", runtime({"post": "disable"})),
    path("workspace/<ws:workspace_id>/runtime-api-access/token", runtime({"get": "token", "post": "rotate"})),
    path("workspace/<ws:workspace_id>/runtime-api-access/token/raw", runtime({"get": "raw_token"})),
    path("workspace/<ws:workspace_id>/ssh", ssh({"get": "retrieve"})),
    path("workspace/<ws:workspace_id>/ssh/enable", ssh({"post": "enable"})),
    path("workspace/<ws:workspace_id>/ssh/disable", ssh({"post": "disable"})),
    path("workspace/<ws:workspace_id>/ssh/key", ssh({"post": "key"})),
    path(
        "workspace/<ws:workspace_id>/workloads",
        workloads({"get": "list", "post": "create", "delete": "destroy_all"}),
    ),
    path(
        "workspace/<ws:workspace_id>/workloads/<str:workload_id>",
        workloads({"get": "retrieve", "put": "update", "patch": "update", "delete": "destroy"}),
    ),
    path("workspace/<ws:workspace_id>/workloads/stats/stream", StreamsViewSet.as_view({"get": "workload_stats"})),
    path(
        "workspace/<ws:workspace_id>/workloads/<str:workload_id>/stats",
        WorkloadStatsViewSet.as_view({"get": "retrieve"}),
    ),
    path(
        "workspace/<ws:workspace_id>/workloads/<str:workload_id>/logs/stream",
        StreamsViewSet.as_view({"get": "workload_logs"}),
    ),
    path("workspace/<ws:workspace_id>/workloads/<str:workload_id>/status", workloads({"get": "status"})),
    path("workspace/<ws:workspace_id>/workloads/<str:workload_id>/logs", LogsViewSet.as_view({"get": "of_workload"})),
    path("workspace/<ws:workspace_id>/workloads/<str:workload_id>/start", workloads({"post": "start"})),
    path("workspace/<ws:workspace_id>/workloads/<str:workload_id>/stop", workloads({"post": "stop"})),
    path("workspace/<ws:workspace_id>/overlay", FilesViewSet.as_view({"get": "list"})),
    path("workspace/<ws:workspace_id>/overlay/usage", FilesViewSet.as_view({"get": "usage"})),
    path("workspace/<ws:workspace_id>/overlay/sync", FilesViewSet.as_view({"post": "sync"})),
    path("workspace/<ws:workspace_id>/overlay/files", FileContentViewSet.as_view({"get": "read", "post": "write"})),
    path("workspace/<ws:workspace_id>/logs", LogsViewSet.as_view({"get": "list", "delete": "clear"})),
    path("workspace/<ws:workspace_id>/logs/list", LogsViewSet.as_view({"get": "files"})),
    path("workspace/<ws:workspace_id>/logs/file/<str:name>", LogFileViewSet.as_view({"get": "retrieve"})),
    path("workspace/<ws:workspace_id>/logs/stream/<str:source>", StreamsViewSet.as_view({"get": "logs"})),
    path("workspace/<ws:workspace_id>/stats/stream", StreamsViewSet.as_view({"get": "stats"})),
]
