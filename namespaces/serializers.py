"""Bodies of the namespace routes."""

from __future__ import annotations

import json
from typing import Any

from rest_framework import serializers

from common.fields import BoundedList, JSONObject, StrictBoolean, StrictChar, StrictFloat, StrictInteger
from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer, Timestamp
from namespaces.limits import all_limits
from namespaces.models import Namespace, Status, Type
from namespaces.services import NewNamespace

MAX_METADATA_BYTES = 64 * 1024
MAX_TAGS, MAX_TAG = 100, 128
MOST = 1_000_000_000  # above every limit; those of plans are far below
SORTS = ("name", "created_at", "updated_at")
# For routes that show the account's objects to credentials of its namespaces.
NAMESPACE_GONE = {404: "`not_found`: the namespace of the credential was deleted"}


class ResourceLimitsField(serializers.Serializer[Any]):
    """Limits, each a number, or null for no limit of the namespace's own."""

    max_workspaces = StrictInteger(min_value=0, max_value=MOST, allow_null=True, default=None)
    max_vcpus = StrictFloat(min_value=0, max_value=MOST, allow_null=True, default=None, help_text="Per workspace.")
    max_ram_mb = StrictFloat(min_value=0, max_value=MOST, allow_null=True, default=None, help_text="Per workspace.")
    max_disk_gb = StrictFloat(
        min_value=0, max_value=MOST, allow_null=True, default=None, help_text="Per workspace, in GiB."
    )


class MetadataField(JSONObject):
    """An object of at most 64 KiB as JSON."""

    def to_internal_value(self, data: Any) -> Any:
        value = super().to_internal_value(data)
        size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
        if size > MAX_METADATA_BYTES:
            raise serializers.ValidationError(f"At most {MAX_METADATA_BYTES} bytes as JSON; it would be {size}.")
        return value


class NamespaceFields(serializers.Serializer[Any]):
    """Fields of a namespace, in a create or an update."""

    name = StrictChar(max_length=255, required=False)
    description = StrictChar(max_length=5000, required=False, allow_blank=True)
    type = serializers.ChoiceField(choices=Type.choices, required=False)
    metadata = MetadataField(required=False)
    tags = BoundedList(child=StrictChar(max_length=MAX_TAG), max_length=MAX_TAGS, required=False)
    resource_limits = ResourceLimitsField(
        required=False, help_text="Limits within the plan's. They replace all former limits."
    )


class EnsureNamespaceRequest(NamespaceFields):
    slug = StrictChar(
        max_length=128, required=False, help_text="Letters, digits and hyphens; default: made from the name."
    )
    isDefault = StrictBoolean(default=False, help_text="It replaces the account's default namespace.")

    def new_namespace(self) -> NewNamespace:
        """Return the fields as services take them. Call it after validation."""
        data = dict(self.validated_data)
        return NewNamespace(
            name=data.pop("name", None),
            slug=data.pop("slug", None),
            is_default=data.pop("isDefault"),
            resource_limits=data.pop("resource_limits", {}),
            fields=data,
        )


class CreateNamespaceRequest(EnsureNamespaceRequest):
    name = StrictChar(max_length=255)


class UpdateNamespaceRequest(NamespaceFields):
    status = serializers.ChoiceField(choices=Status.choices, required=False)
    isDefault = StrictBoolean(
        required=False,
        help_text="`true`: it becomes the account's default namespace. An account always has one.",
    )


class DeleteNamespaceRequest(serializers.Serializer[Any]):
    deleteWorkspaces = StrictBoolean(default=False)


class DeleteNamespaceQuery(serializers.Serializer[Any]):
    deleteWorkspaces = serializers.BooleanField(
        default=False,
        help_text="False: they are moved to the default namespace. True: they and their data are destroyed.",
    )


class ListNamespacesQuery(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=Status.choices, required=False)
    type = serializers.ChoiceField(choices=Type.choices, required=False)
    search = serializers.CharField(required=False, max_length=255, help_text="Part of the name or slug.")
    sortBy = serializers.ChoiceField(choices=SORTS, default="created_at")
    sortOrder = serializers.ChoiceField(choices=["ASC", "DESC"], default="DESC")


class NamespaceLimits(ResponseSerializer):
    max_workspaces = serializers.IntegerField(allow_null=True)
    max_vcpus = serializers.FloatField(allow_null=True)
    max_ram_mb = serializers.FloatField(allow_null=True)
    max_disk_gb = serializers.FloatField(allow_null=True)


class NamespaceObject(ResponseSerializer):
    id = serializers.CharField()
    client_id = serializers.CharField(source="account_id", help_text="The account that owns it.")
    name = serializers.CharField()
    slug = serializers.CharField()
    description = serializers.CharField()
    status = serializers.ChoiceField(choices=Status.choices)
    type = serializers.ChoiceField(choices=Type.choices)
    is_default = serializers.BooleanField()
    metadata = serializers.DictField()
    tags = serializers.ListField(child=serializers.CharField())
    resource_limits = NamespaceLimits()
    created_at = Timestamp()
    updated_at = Timestamp()
    last_active_at = Timestamp(allow_null=True)

    def read_resource_limits(self, namespace: Namespace) -> dict[str, Any]:
        return all_limits(namespace.resource_limits)


class NamespaceActivityObject(ResponseSerializer):
    id = serializers.IntegerField()
    namespace_id = serializers.CharField()
    user_id = serializers.CharField(
        source="actor", help_text="Who did it: the label of a credential, or a member of staff."
    )
    action = serializers.CharField()
    description = serializers.CharField(source="detail")
    changes = serializers.DictField(help_text="Field to `{from, to}`.")
    ip_address = BlankAsNull()
    user_agent = BlankAsNull()
    created_at = Timestamp()


class NamespaceResponse(Success):
    data = NamespaceObject()  # type: ignore[assignment]  # the specification's name


class EnsuredNamespaceResponse(NamespaceResponse):
    created = serializers.BooleanField()


class ActivatedNamespaceResponse(NamespaceResponse):
    message = serializers.CharField()


class StoppedWorkspacesResponse(Success):
    message = serializers.CharField()
    stoppedWorkspaces = serializers.IntegerField(help_text="Machines whose stop was queued.")


class DeletedNamespaceResponse(Success):
    message = serializers.CharField()
    movedWorkspaces = serializers.IntegerField(required=False)
    deletedWorkspaces = serializers.IntegerField(required=False)
