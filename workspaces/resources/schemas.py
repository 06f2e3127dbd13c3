"""Shapes of the resources' responses for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import ResourcesObject, Success
from workspaces.states import Status


class CpuConfig(s.Serializer):
    quota = s.CharField(help_text="Of one CPU's time, such as 150%.")


class PendingResources(s.Serializer):
    cpus = s.FloatField(required=False)
    memory_mb = s.IntegerField(required=False)
    disk_size_mb = s.IntegerField(required=False)


class SavedResources(ResourcesObject):
    cpu_config = CpuConfig()
    status = s.ChoiceField(Status.choices)
    pending = PendingResources(required=False, help_text="What is saved and waits for the next start.")


class ResourcesResponse(Success):
    resources = SavedResources()


class ResourcesUpdated(Success):
    accepted = s.BooleanField(required=False)
    updated = ResourcesObject()
    relaunched = s.BooleanField()


class OverlayResized(Success):
    accepted = s.BooleanField(required=False)
    size_mb = s.IntegerField()
    wasRunning = s.BooleanField()
    relaunched = s.BooleanField()
