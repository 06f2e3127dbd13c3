"""Requests and responses of the workspace routes, and the conversion of valid requests for the services."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from common.fields import AnyField, StrictBoolean, StrictChar, StrictFloat
from common.openapi import Success
from common.pagination import PageQuery
from common.requests import validated, validated_query
from common.serializers import ResponseSerializer
from vmbackend.errors import ImageError
from vmbackend.images.reference import parse_reference
from workspaces import errors
from workspaces.crud.config import Config, read_config
from workspaces.crud.placement_fields import Placement
from workspaces.crud.services import NewWorkspace
from workspaces.crud.slugs import is_slug
from workspaces.models import Workspace
from workspaces.models.workspace import Mode
from workspaces.serializers import ProvisioningObject, ResourcesObject, WorkspaceObject
from workspaces.settings_serializers import ConfigObject, LifecycleObject, OpenObject
from workspaces.states import Status

NAMESPACE = re.compile(r"[A-Za-z0-9-]{1,128}")
# Names of a size at the top level of a create; the first that is given counts.
SIZE_NAMES = {
    "cpus": ("cpus", "vcpus"),
    "memory_mb": ("memory_mb", "ram_mb"),
    "disk_size_mb": ("disk_size_mb", "disk_mb"),
}
# Fields that control the response only: a request that differs in them is the same request for idempotency.
ANSWER_FIELDS = frozenset({"idempotency_key", "wait_ready", "ready_timeout_seconds"})


# Fields with an error code of their own are checked in `new_workspace`.
class CreateRequest(serializers.Serializer[Any]):
    """Request to create a workspace."""

    name = StrictChar(required=False, allow_null=True, allow_blank=True)
    slug = StrictChar(required=False, allow_null=True)
    image = StrictChar(required=False, allow_null=True)
    preset = StrictChar(
        required=False,
        allow_null=True,
        max_length=120,
        help_text="A preset of the image catalog: sets the sizes and the image. A given `image` must be its base.",
    )
    namespace = StrictChar(required=False, allow_null=True)
    snapshot = StrictChar(
        required=False,
        allow_null=True,
        max_length=128,
        help_text="A snapshot's id or name. Image and preset are its own; sizes that are left out, too.",
    )
    memory = StrictBoolean(
        required=False,
        allow_null=True,
        help_text="Whether it goes on from the snapshot's memory (default: if there is any); false: it boots.",
    )
    placement = Placement(required=False, allow_null=True, help_text="On which host; default: the platform's choice.")
    mode = serializers.ChoiceField(Mode.choices, default=Mode.TEMPORARY.value)
    config = Config(required=False)
    type = StrictChar(required=False, allow_null=True, allow_blank=True, max_length=64)
    wait_ready = StrictBoolean(default=True)
    ready_timeout_seconds = StrictFloat(min_value=1, max_value=600, default=600)
    idempotency_key = StrictChar(required=False, max_length=255)

    def validate_slug(self, value: str | None) -> str | None:
        return checked_slug(value)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("snapshot") is None:
            if attrs.get("memory") is not None:
                raise serializers.ValidationError({"memory": "memory: it is of a snapshot, which is not given."})
            return attrs
        given = [name for name in ("image", "preset") if attrs.get(name) is not None]
        if given:
            raise serializers.ValidationError({name: f"{name}: it is the snapshot's; leave it out." for name in given})
        return attrs


def checked_slug(value: str | None) -> str | None:
    """Return a slug if it has 3 to 128 lowercase letters, digits and hyphens and is not a word of a route. Raise
    serializers.ValidationError otherwise.
    """
    if value is not None and not is_slug(value):
        raise serializers.ValidationError("3 to 128 lowercase letters, digits and hyphens, and not a word of a route.")
    return value


def new_workspace(body: dict[str, Any]) -> tuple[NewWorkspace, dict[str, Any]]:
    """Return the service input for a create request, and the validated body.

    Raise InvalidNamespace, InvalidNameLength, InvalidImage, InvalidConfig, ValidationError; in this order.
    """
    _require_special_fields(body)
    config = read_config(body.get("config", {}), beside=_sizes_beside_config(body))
    rest = CreateRequest(data={name: value for name, value in body.items() if name != "config"})
    rest.is_valid(raise_exception=True)
    data = rest.validated_data
    if data["mode"] == Mode.PERMANENT and config.columns.get("ttl_seconds"):
        raise errors.InvalidConfig(details={"ttl": ["A permanent workspace has no ttl."]})
    new = NewWorkspace(
        image=data.get("image"),
        preset=data.get("preset"),
        sizes=config.sizes,
        name=data.get("name") or None,
        slug=data.get("slug"),
        namespace=data.get("namespace"),
        snapshot=data.get("snapshot"),
        memory=data.get("memory"),
        placement=data.get("placement") or {},
        fields={
            "mode": data["mode"],
            "type": data.get("type") or "",
            **config.columns,
        },
    )
    return new, data


def _require_special_fields(body: dict[str, Any]) -> None:
    namespace, name, image = body.get("namespace"), body.get("name"), body.get("image")
    if namespace is not None and not (isinstance(namespace, str) and NAMESPACE.fullmatch(namespace)):
        raise errors.InvalidNamespace(details={"namespace": [errors.InvalidNamespace.message]})
    if isinstance(name, str) and len(name) > 255:
        raise errors.InvalidNameLength(details={"name": [errors.InvalidNameLength.message]})
    if "image" in body and not (image is None and (body.get("preset") or body.get("snapshot"))):
        require_image(image)


def require_image(image: Any) -> None:
    """Raise InvalidImage unless it is a container image reference."""
    if not isinstance(image, str) or not image.strip():
        raise errors.InvalidImage(details={"image": [errors.InvalidImage.message]})
    try:
        parse_reference(image)
    except ImageError as exc:
        raise errors.InvalidImage(exc.message, details={"image": [exc.message]}) from exc


def _sizes_beside_config(body: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the sizes that are given beside `config`, which has precedence, each with the name that the
    request uses.
    """
    found = {name: next((each for each in names if each in body), "") for name, names in SIZE_NAMES.items()}
    return {name: (sent, body[sent]) for name, sent in found.items() if sent}


class UpdateRequest(serializers.Serializer[Any]):
    """Changes of a workspace. Null removes slug and logo. `config` takes the settings that have no route of
    their own.
    """

    name = StrictChar(required=False)
    slug = StrictChar(required=False, allow_null=True)
    logo = StrictChar(required=False, allow_null=True, max_length=2048)
    config = serializers.DictField(required=False)

    def validate_slug(self, value: str | None) -> str | None:
        return checked_slug(value)


# Each of these has a route of its own, with its own rules.
ELSEWHERE = {
    "cpus": "resources",
    "memory_mb": "resources",
    "disk_size_mb": "resources",
    "ttl": "lifecycle/ttl",
    "ttl_action": "lifecycle/ttl",
    "network_config": "network",
}


def workspace_changes(body: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that an update sets. Raise InvalidNameLength, InvalidConfig, ValidationError."""
    name = body.get("name")
    if isinstance(name, str) and len(name) > 255:
        raise errors.InvalidNameLength(details={"name": [errors.InvalidNameLength.message]})
    if not isinstance(body.get("config", {}), dict):
        raise errors.InvalidConfig("The config must be an object.")
    checked = UpdateRequest(data=body)
    checked.is_valid(raise_exception=True)
    data = dict(checked.validated_data)
    config = data.pop("config", {})
    misplaced = {key: [f"Change it with PUT /workspace/:id/{ELSEWHERE[key]}."] for key in config if key in ELSEWHERE}
    if misplaced:
        raise errors.InvalidConfig(details=misplaced)
    return {**data, **read_config(config, partial=True).columns}


class DeleteRequest(serializers.Serializer[Any]):
    keep_snapshots = serializers.BooleanField(
        default=False, help_text="Whether its snapshots stay, with `workspace_id` null."
    )


def keeps_snapshots(request: Request) -> bool:
    """Return whether a delete keeps the workspace's snapshots, by its query or its body. Raise ValidationError."""
    found = [validated_query(DeleteRequest, request), validated(DeleteRequest, request)]
    return any(each["keep_snapshots"] for each in found)


class ListQuery(PageQuery):
    mode = serializers.ChoiceField(Mode.choices, required=False)
    status = serializers.ChoiceField(Status.choices, required=False)
    namespace = serializers.CharField(required=False, max_length=128)
    search = serializers.CharField(required=False, max_length=255)


class AcceptedResponse(Success):
    id = serializers.CharField(source="workspace.id")
    ready = serializers.BooleanField(source="workspace.ready")
    provisioning = ProvisioningObject(source="workspace")
    workspace = WorkspaceObject()


class ListResponse(Success):
    workspaces = WorkspaceObject(many=True)
    total = serializers.IntegerField()
    page = serializers.IntegerField()
    limit = serializers.IntegerField()


@dataclass(frozen=True, slots=True)
class Details:
    """Contents of a workspace's details: a row with every column, a token for it, and its statistics."""

    workspace: Workspace
    token: str
    stats: dict[str, Any]


class SshState(ResponseSerializer):
    ssh_enabled = serializers.BooleanField()
    ssh_id = serializers.CharField(source="pk")


class ApiAccess(ResponseSerializer):
    terminal = serializers.BooleanField(source="ready")
    preview = serializers.BooleanField(source="public_access")
    runtime = serializers.BooleanField(source="runtime_enabled")


class DetailsExtras(ResponseSerializer):
    token = serializers.CharField()
    stats = serializers.DictField()
    ssh = OpenObject(SshState, source="workspace")
    api_access = OpenObject(ApiAccess, source="workspace", child=serializers.BooleanField())
    lifecycle = OpenObject(LifecycleObject, source="workspace")
    config = OpenObject(ConfigObject, source="workspace")


class DetailsObject(WorkspaceObject, DetailsExtras):
    """A workspace and its details, in one object."""

    def to_representation(self, details: Details) -> dict[str, Any]:
        return {**WorkspaceObject(details.workspace).data, **DetailsExtras(details).data}


class DetailsEnvelope(Success):
    workspace = DetailsObject(source="*")


class DetailsResponse(DetailsEnvelope, DetailsExtras):
    """Details of a workspace: in `workspace`, and all but the workspace's own fields once more beside it."""


class PoolUsage(ResourcesObject):
    count = serializers.IntegerField()

    def get_fields(self) -> dict[str, AnyField]:
        fields = super().get_fields()
        return {"count": fields.pop("count"), **fields}


class QuotaResponse(Success):
    """Limits and use of an account (`AccountQuota`)."""

    plan = serializers.CharField(source="plan.code")
    planLabel = serializers.CharField(source="plan.label")
    limits = ResourcesObject()
    pool = ResourcesObject()
    pool_usage = PoolUsage(source="used.owned")
    running_pool = ResourcesObject()
    running_pool_usage = PoolUsage(source="used.running")
    maxSandboxes = serializers.IntegerField(source="plan.max_workspaces")
    currentSandboxes = serializers.IntegerField(source="used.records")
    canCreate = serializers.BooleanField(source="can_create")
    reason = serializers.CharField(allow_null=True)
