"""Names of settings for which something holds besides their type (config/env.py)."""

from __future__ import annotations

# Ignored, the former names of limits would silently become their defaults.
RENAMED = {
    "leftover_grace_seconds": "orphan_grace_seconds",
    "leftover_removals_per_hour": "orphan_removals_per_hour",
}
# What vmhost reads, and what all hosts must agree on.
SHARED = (
    *("base_url", "public_url", "sandbox_url", "runtime_url", "cdn_url", "default_image"),
    *("insecure_registries", "private_registries", "refused_networks", "image_max_mb", "image_pull_seconds"),
    *("create_seconds", "power_seconds", "ready_seconds", "retry_seconds", "stop_grace_seconds"),
    *("reconcile_seconds", "orphan_grace_seconds", "orphan_removals_per_hour"),
    *("metering_seconds", "billing_seconds", "memory_overcommit"),
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
