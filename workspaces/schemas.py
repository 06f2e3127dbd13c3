"""Shapes of responses for the OpenAPI document. `api/bodies.py` makes them; a test holds the two together."""

from __future__ import annotations

from rest_framework import serializers as s

from common.openapi import Success
from workspaces.states import Provisioning, ProvisioningPhase, Status


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


class GoingOnResponse(Success):
    accepted = s.BooleanField(help_text="The operation goes on; reads show how.")
    workspace = WorkspaceObject()
