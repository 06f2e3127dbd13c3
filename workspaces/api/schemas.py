"""Shapes of responses for the OpenAPI document. `api/bodies.py` makes them; a test holds the two together."""

from __future__ import annotations

from collections.abc import Mapping

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers as s

from workspaces.states import Provisioning, ProvisioningPhase, Status


def refused(codes: Mapping[int, str]) -> dict[int, OpenApiResponse]:
    """The documented refusals of a route: status -> which codes come with it."""
    error = {"$ref": "#/components/schemas/Error"}
    return {status: OpenApiResponse(error, description=f"{what}.") for status, what in codes.items()}


class Success(s.Serializer):
    success = s.BooleanField(default=True)


class Failure(s.Serializer):
    code = s.CharField()
    message = s.CharField()


class ProvisioningObject(s.Serializer):
    state = s.ChoiceField(Provisioning.choices)
    phase = s.ChoiceField(ProvisioningPhase.choices)
    progress = s.IntegerField(min_value=0, max_value=100)
    message = s.CharField()
    error = Failure(allow_null=True)
    attempts = s.IntegerField()
    created_at = s.DateTimeField()
    updated_at = s.DateTimeField()
    completed_at = s.DateTimeField(allow_null=True)


class InfoObject(s.Serializer):
    status = s.ChoiceField(Status.choices)
    is_running = s.BooleanField()
    user_requested_stop = s.BooleanField()
    error = Failure(allow_null=True, help_text="Why the last operation failed, if it did.")


class AccessObject(s.Serializer):
    ssh_enabled = s.BooleanField()


class NetworkObject(s.Serializer):
    allow_internet = s.BooleanField()
    ingress_ports = s.ListField(child=s.IntegerField())
    egress_ports = s.ListField(child=s.IntegerField())
    egress = s.ListField(child=s.CharField())
    public_access = s.BooleanField()
    ingress = s.ListField(child=s.CharField())


class PublicPort(s.Serializer):
    port = s.IntegerField()
    hash = s.CharField()
    domain = s.CharField()
    label = s.CharField()  # type: ignore[assignment]  # the specification's name
    url = s.CharField()


class ResourcesObject(s.Serializer):
    cpus = s.FloatField()
    memory_mb = s.IntegerField()
    disk_size_mb = s.IntegerField(help_text="MiB")


class ImageDesktop(s.Serializer):
    installable = s.BooleanField()
    prepared = s.BooleanField()


class WorkspaceObject(s.Serializer):
    id = s.CharField()
    name = s.CharField()
    slug = s.CharField(allow_null=True)
    namespace = s.CharField()
    mode = s.CharField()
    type = s.CharField()
    image = s.CharField()
    preset = s.CharField(allow_null=True)
    logo = s.CharField(allow_null=True)
    ip = s.CharField(allow_null=True)
    uptime = s.IntegerField(help_text="Seconds since the last start.")
    start_time = s.DateTimeField(allow_null=True)
    status = s.ChoiceField(Status.choices)
    ready = s.BooleanField()
    info = InfoObject()
    access = AccessObject()
    network = NetworkObject()
    public_ports = PublicPort(many=True)
    resources = ResourcesObject()
    image_logo = s.CharField(allow_null=True)
    image_color = s.CharField(allow_null=True)
    image_desktop = ImageDesktop(allow_null=True)
    image_capabilities = s.ListField(child=s.CharField())
    provisioning = ProvisioningObject()
    created_at = s.DateTimeField()
    updated_at = s.DateTimeField()


class WorkspaceResponse(Success):
    workspace = WorkspaceObject()


class AcceptedResponse(Success):
    id = s.CharField()
    ready = s.BooleanField()
    provisioning = ProvisioningObject()
    workspace = WorkspaceObject()


class GoingOnResponse(Success):
    accepted = s.BooleanField(help_text="The operation goes on; reads show how.")
    workspace = WorkspaceObject()


class ReinstallResponse(Success):
    accepted = s.BooleanField(required=False)
    workspace_id = s.CharField()
    reinstalled = s.BooleanField()
    running = s.BooleanField()
    ip = s.CharField(allow_null=True)
    message = s.CharField()


class ListResponse(Success):
    workspaces = WorkspaceObject(many=True)
    total = s.IntegerField()
    page = s.IntegerField()
    limit = s.IntegerField()


class DetailsExtras(s.Serializer):
    token = s.CharField()
    stats = s.DictField()
    ssh = s.DictField()
    api_access = s.DictField(child=s.BooleanField())
    lifecycle = s.DictField()
    config = s.DictField()


class DetailsObject(WorkspaceObject, DetailsExtras):
    pass


class DetailsResponse(Success, DetailsExtras):
    workspace = DetailsObject()


class PoolUsage(ResourcesObject):
    count = s.IntegerField()


class QuotaResponse(Success):
    plan = s.CharField()
    planLabel = s.CharField()
    limits = ResourcesObject()
    pool = ResourcesObject()
    pool_usage = PoolUsage()
    running_pool = ResourcesObject()
    running_pool_usage = PoolUsage()
    maxSandboxes = s.IntegerField()
    currentSandboxes = s.IntegerField()
    canCreate = s.BooleanField()
    reason = s.CharField(allow_null=True)


class ExecResponse(Success):
    exit_code = s.IntegerField()
    stdout = s.CharField()
    stderr = s.CharField()
    duration_ms = s.IntegerField()
    truncated = s.BooleanField()
    timed_out = s.BooleanField()
