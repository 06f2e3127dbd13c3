"""The `config` of a workspace: its fields, what is valid in them, and which columns they set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from common.fields import Duration, StrictBoolean, StrictFloat, StrictInteger
from common.responses import field_messages
from workspaces import errors
from workspaces.fields import CommandField, EnvField
from workspaces.images import shapes
from workspaces.models.workspace import RestartPolicy, TtlAction
from workspaces.workload_changes.serializers import WorkloadRequest
from workspaces.workloads import MAX_WORKLOADS

MAX_DISK_MB = 1_048_576
RESOURCES = ("cpus", "memory_mb", "disk_size_mb")


class NetworkConfig(serializers.Serializer[Any]):
    allow_internet = StrictBoolean(default=True)
    public_ingress = StrictBoolean(default=False)


class Desktop(serializers.Serializer[Any]):
    enabled = StrictBoolean(default=False)


class ResourceFields(serializers.Serializer[Any]):
    """Ranges of the specification; the plan narrows them."""

    cpus = StrictFloat(min_value=0.1, max_value=12, required=False)
    memory_mb = StrictInteger(min_value=128, max_value=65536, required=False)
    disk_size_mb = StrictInteger(min_value=64, max_value=MAX_DISK_MB, required=False)


class Config(ResourceFields):
    ttl = Duration(required=False, allow_null=True)
    ttl_action = serializers.ChoiceField(TtlAction.choices, default=TtlAction.STOP.value)
    remove_on_exit = StrictBoolean(default=False)
    restart_policy = serializers.ChoiceField(RestartPolicy.choices, default=RestartPolicy.NO.value)
    max_restarts = StrictInteger(min_value=0, max_value=1_000_000, default=0)
    keep_logs = StrictBoolean(default=True)
    static_network = StrictBoolean(default=False)
    network_config = NetworkConfig(required=False, allow_null=True)
    ssh_access = StrictBoolean(default=False)
    env = EnvField(default=dict)
    cmd = CommandField(required=False, allow_null=True)
    workloads = WorkloadRequest(many=True, default=list)
    wait_for_init = StrictBoolean(default=False)
    proxy_assignment_id = StrictInteger(required=False, allow_null=True)
    desktop = Desktop(required=False, allow_null=True)
    macos = serializers.DictField(required=False, allow_null=True)

    def validate_workloads(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len({item["name"] for item in value}) != len(value):
            raise serializers.ValidationError("Two workloads have the same name.")
        return value

    def validate_macos(self, value: Any) -> Any:
        if value is not None:
            raise serializers.ValidationError("Only for images of family macos; no host runs them.")
        return value

    def validate_proxy_assignment_id(self, value: Any) -> Any:
        if value is not None:
            raise serializers.ValidationError("This account has no such proxy assignment.")
        return value


def valid_config(
    config: dict[str, Any], *, partial: bool = False, sent_as: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Raises InvalidConfig that names each wrong field as the caller did: `sent_as` has the fields with other names."""
    if "image" in config:
        # Ignored like an unknown field, it would silently make a workspace of the default image.
        problem = "The image is not changed by an update." if partial else "Give the image beside config, not in it."
        raise errors.InvalidConfig(details={"image": [problem]})
    workloads = config.get("workloads")
    if isinstance(workloads, list) and len(workloads) > MAX_WORKLOADS:  # before each of them is checked
        problem = f"At most {MAX_WORKLOADS} workloads."
        raise errors.InvalidConfig(details={"workloads": [problem]})
    checked = Config(data=config, partial=partial)
    if not checked.is_valid():
        names = sent_as or {}
        details = {names.get(name, name): texts for name, texts in field_messages(checked.errors).items()}
        raise errors.InvalidConfig(details=details)
    found: dict[str, Any] = checked.validated_data
    return found


def requested_sizes(config: dict[str, Any]) -> dict[str, int]:
    """The columns of resources that a config names."""
    return shapes.columns({name: config[name] for name in RESOURCES if name in config})


# From a config field to the column that holds it, where the names are the same.
SAME_NAME = (
    "ttl_action",
    "remove_on_exit",
    "restart_policy",
    "max_restarts",
    "keep_logs",
    "static_network",
    "env",
    "cmd",
    "wait_for_init",
    "proxy_assignment_id",
)


def config_columns(config: dict[str, Any]) -> dict[str, Any]:
    """The columns that the given fields of a valid config set; resources are not among them."""
    columns: dict[str, Any] = {name: config[name] for name in SAME_NAME if name in config}
    if "ttl" in config:
        columns["ttl_seconds"] = config["ttl"]
    if "ssh_access" in config:
        columns["ssh_enabled"] = config["ssh_access"]
    if "workloads" in config:
        columns["workloads"] = [dict(item) for item in config["workloads"]]
    if "desktop" in config:
        columns["desktop_enabled"] = bool(config["desktop"] and config["desktop"]["enabled"])
    network = config.get("network_config")
    if network:
        columns["allow_internet"] = network["allow_internet"]
        columns["public_access"] = network["public_ingress"]
    return columns
