"""Defaults of settings that are made of others or of the machine, and lists of their names (config/env.py)."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from typing import Any

from pydantic import Field

LOOPBACK = "127.0.0.1"
_WILDCARDS = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
# Ignored, the former names of limits would silently become their defaults.
RENAMED = {
    "leftover_grace_seconds": "orphan_grace_seconds",
    "leftover_removals_per_hour": "orphan_removals_per_hour",
}
# What vmhost reads, and what all hosts must agree on.
SHARED = (
    *("base_url", "public_url", "sandbox_url", "runtime_url", "cdn_url", "default_image"),
    *("insecure_registries", "private_registries", "refused_networks", "image_max_mb", "image_pull_seconds"),
    *("move_seconds", "move_mb_per_second"),
    *("create_seconds", "power_seconds", "ready_seconds", "retry_seconds", "stop_grace_seconds"),
    *("reconcile_seconds", "orphan_grace_seconds", "orphan_removals_per_hour"),
    *("metering_seconds", "billing_seconds", "memory_overcommit"),
    "private_port",  # hosts reach each other at the same one
)
# Empty, they would be the current folder, every address of the host, no name at all.
EMPTY_IS_UNSET = frozenset(
    {
        *("state", "short_state", "machines_dir", "cache_dir", "kit_dir", "images_dir", "registry_auth_file", "faults"),
        *("bind", "base_url", "public_url", "sandbox_url", "runtime_url", "pages_url", "cdn_url", "database_url"),
        *("redis_url", "libvirt_uri", "host_name", "host_address", "control_instance", "machine_roles"),
        *("default_image", "edge_host", "fcm_credentials"),
    }
)


def derived(shown: str, factory: Callable[[dict[str, Any]], Any], **options: Any) -> Any:
    """Return a default made of the fields above it; `shown` is what docs/operations.md calls it."""
    return Field(default_factory=factory, json_schema_extra={"default": shown}, **options)


def host_name(_: dict[str, Any]) -> str:
    """Return the first part of the machine's name, as far as a host may be called so."""
    name = socket.gethostname().split(".")[0].lower()
    return re.sub(r"[^a-z0-9-]", "-", name)[:40] or "host"


def pool_memory_mb(_: dict[str, Any]) -> int:
    """Return an eighth of the machine's memory, at most 4 GiB."""
    return min(4096, (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20) // 8)


def base_url(data: dict[str, Any]) -> str:
    """Return the address at which the edge listens."""
    name = LOOPBACK if data["bind"] in _WILDCARDS else data["bind"]
    return f"http://[{name}]:{data['port']}" if ":" in name else f"http://{name}:{data['port']}"


def private_port(data: dict[str, Any]) -> int:
    """Return the first of three ports."""
    port: int = data["port"]
    return port + (2000 if port <= 63534 else -2000)
