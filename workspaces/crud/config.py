"""The `config` of a workspace: its fields, their valid values, and the columns that they set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """Settings, in the ranges of the specification; the plan narrows them."""

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


@dataclass(frozen=True, slots=True)
class ValidConfig:
    """The columns that a valid config sets: those of resources, and the others."""

    sizes: dict[str, int]
    columns: dict[str, Any]


def read_config(
    config: Any, *, partial: bool = False, beside: Mapping[str, tuple[str, Any]] | None = None
) -> ValidConfig:
    """Check a config and return the columns that it sets; an update (`partial`) sets only the given fields. `beside`:
    fields that are given beside the config, under another name; they count if the config does not have them.

    Raise InvalidConfig, which names each wrong field as the caller did.
    """
    if not isinstance(config, dict):
        raise errors.InvalidConfig("The config must be an object.")
    others = {name: given for name, given in (beside or {}).items() if name not in config}
    _require_no_other_field(config, partial=partial)
    checked = Config(data=config | {name: value for name, (_, value) in others.items()}, partial=partial)
    if not checked.is_valid():
        sent_as = {name: sent for name, (sent, _) in others.items()}
        details = {sent_as.get(name, name): texts for name, texts in field_messages(checked.errors).items()}
        raise errors.InvalidConfig(details=details)
    found: dict[str, Any] = checked.validated_data
    sizes = shapes.columns({name: found[name] for name in RESOURCES if name in found})
    return ValidConfig(sizes, _columns(found))


def _require_no_other_field(config: dict[str, Any], *, partial: bool) -> None:
    if "image" in config:
        # If it were ignored like an unknown field, the workspace would silently have the default image.
        problem = "The image is not changed by an update." if partial else "Give the image beside config, not in it."
        raise errors.InvalidConfig(details={"image": [problem]})
    workloads = config.get("workloads")
    if isinstance(workloads, list) and len(workloads) > MAX_WORKLOADS:  # before each of them is checked
        problem = f"At most {MAX_WORKLOADS} workloads."
        raise errors.InvalidConfig(details={"workloads": [problem]})


# Config fields whose column has the same name.
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


def _columns(config: dict[str, Any]) -> dict[str, Any]:
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
