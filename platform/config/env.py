"""Every setting of the platform, typed, from `PLATFORM_*` environment variables: nothing else reads them.

docs/operations.md has the table; a test compares it with the fields below. A value that is invalid by itself stops the
process with a message; values that contradict each other are found by the system checks in `config.checks`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from cdn.types import content_types
from common.private_network import stored_address
from config import env_defaults as defaults
from config.database import private_url
from config.env_admin import AdminSettings
from config.env_assist import AssistSettings
from config.env_cdn import CdnSettings
from config.env_defaults import EMPTY_IS_UNSET, LOOPBACK, RENAMED, SHARED, derived
from config.env_notifications import NotificationSettings
from config.env_pages import PageSettings
from config.env_placement import PlacementSettings
from config.env_runtime import RuntimeSettings
from config.env_traces import TracesSettings
from config.env_types import (
    CONTROL_ROLES,
    HOST_ROLE,
    AbsolutePath,
    Addresses,
    CommaSeparated,
    HostAddress,
    HostName,
    Networks,
    Places,
    Resolvers,
    Roles,
)
from config.own_redis import own_redis_url
from edge.addresses import CdnAddress, PublicAddress, RuntimeAddress, SandboxAddress, page_addresses
from vmbackend.uids import default_first_uid

PREFIX = "PLATFORM_"
# Upper bounds: far above what is of use, and below what the arithmetic of times, of limits and of columns can hold.
_YEAR, _MANY, _EXBIBYTE_MB = 366 * 86400, 100_000, 1 << 40


def variable(field: str) -> str:
    """Return the name of a setting's environment variable."""
    return PREFIX + field.upper()


class Env(
    AdminSettings, AssistSettings, CdnSettings, NotificationSettings, PageSettings, PlacementSettings, RuntimeSettings,
    TracesSettings,
):  # fmt: skip
    """All settings. Sizes are MiB, times seconds, unless the name says otherwise."""

    model_config = ConfigDict(extra="ignore")

    # The instance
    state: AbsolutePath = Field(default=Path("var"), validate_default=True)
    short_state: Path = derived("`STATE`", lambda data: data["state"])
    instance: str = Field(default="000000", pattern=r"^[0-9a-f]{6}$")
    control_instance: str = derived("its own", lambda data: data["instance"], pattern=r"^[0-9a-f]{6}$")
    machine_roles: Roles = Field(
        default=(*CONTROL_ROLES, HOST_ROLE), json_schema_extra={"default": "`control,files,edge,host`"}
    )
    secret_key: str = ""
    secret_key_fallbacks: CommaSeparated = ()
    data_key: str = ""
    data_key_fallbacks: CommaSeparated = ()
    debug: bool = False
    demo: bool = True
    bind: str = LOOPBACK
    port: int = Field(default=8000, gt=0, lt=65536)
    base_url: str = derived("`http://BIND:PORT`", defaults.base_url)
    public_url: str = derived(
        "`http://{hash}.localhost:PORT`", lambda data: f"http://{{hash}}.localhost:{data['port']}"
    )
    sandbox_url: str = derived("`BASE_URL/s/{id}`", lambda data: f"{data['base_url'].rstrip('/')}/s/{{id}}")
    runtime_url: str = derived("`BASE_URL/r`", lambda data: f"{data['base_url'].rstrip('/')}/r")
    pages_url: CommaSeparated = derived(
        "`http://{slug}.pages.localhost:PORT`", lambda data: (f"http://{{slug}}.pages.localhost:{data['port']}",)
    )
    cdn_url: str = derived("`http://cdn.localhost:PORT`", lambda data: f"http://cdn.localhost:{data['port']}")
    public_certificate: str = ""
    public_key: str = ""
    pages_certificate: str = ""
    pages_key: str = ""
    cdn_certificate: str = ""
    cdn_key: str = ""
    behind_proxy: bool = False
    allowed_hosts: CommaSeparated = Field(
        default=("localhost", LOOPBACK, "[::1]"),
        validate_default=True,
        json_schema_extra={"default": "`localhost,127.0.0.1,[::1]`"},
    )
    database_url: str = derived("the instance's own server", lambda data: private_url(data["short_state"]))
    migration_wait_seconds: int = Field(default=7200, ge=1, le=_YEAR)
    redis_url: str = derived(
        "the instance's own server", lambda data: own_redis_url(data["short_state"], data["secret_key"])
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["line", "json"] = "line"

    # The process: set for each one by the supervisor
    role: str = ""
    supervised: str = ""
    faults: Path | None = None

    # How much each process does at once
    api_workers: int = Field(default=2, ge=1, le=1024)
    api_threads: int = Field(default=160, ge=2, le=4096)
    api_waiters: int = Field(default=96, ge=1, le=4096)
    worker_processes: int = Field(default=2, ge=1, le=1024)
    vmhost_threads: int = Field(default=32, ge=1, le=4096)
    webhook_threads: int = Field(default=128, ge=4, le=4096)
    pages_threads: int = Field(default=4, ge=1, le=256)
    streams_max: int = Field(default=4000, ge=1, le=_MANY)
    streams_per_account: int = Field(default=1000, ge=1, le=_MANY)
    commands_max: int = Field(default=512, ge=1, le=_MANY)
    commands_per_account: int = Field(default=256, ge=1, le=_MANY)
    # Limits of one sandbox. The guest itself keeps at most 64 terminals and 8 watches.
    sandbox_sockets_max: int = Field(default=16, ge=1, le=_MANY)
    sandbox_terminals_max: int = Field(default=64, ge=1, le=64)
    sandbox_watches_max: int = Field(default=8, ge=1, le=8)
    # The kept output of a terminal, in bytes. At least what a streams process may hold of it
    # (workspaces/data_plane/sockets/output.py).
    sandbox_output_bytes: int = Field(default=256 * 1024, ge=256 * 1024, le=16 << 20)

    # The host that this machine is
    host_name: str = derived("the machine's name", defaults.host_name, pattern=r"^[a-z0-9-]{1,40}$")
    vm_backend: Literal["libvirt", "fake"] = "libvirt"
    libvirt_uri: str = derived(
        "`qemu:///embed?root=STATE/libvirt`", lambda data: f"qemu:///embed?root={data['short_state']}/libvirt"
    )
    accel: Literal["auto", "kvm", "qemu"] = "auto"
    subnet: IPv4Network = Field(
        default=IPv4Network("10.200.0.0/20"), json_schema_extra={"default": "a free /20 of 10.128.0.0/9"}
    )
    machine_uid_first: int = derived(
        "1879048192 + the last three bytes of SUBNET",
        lambda data: default_first_uid(data["subnet"]),
        gt=0,
        lt=1 << 31,
    )
    control_key: str = ""
    host_address: HostAddress = derived(
        "the one that `make host-token` opened", lambda data: stored_address(data["state"])
    )
    private_port: int = derived("PORT + 2000", defaults.private_port, gt=0, lt=65535)
    guest_dns: CommaSeparated = ()
    machines_dir: AbsolutePath = derived("`STATE/machines`", lambda data: data["state"] / "machines")
    cache_dir: AbsolutePath = derived("`STATE/cache`", lambda data: data["state"] / "cache")
    kit_dir: AbsolutePath = derived("`CACHE_DIR/kit`", lambda data: data["cache_dir"] / "kit")
    images_dir: AbsolutePath = derived("`CACHE_DIR/images`", lambda data: data["cache_dir"] / "images")
    memory_reserve_mb: int = Field(default=512, ge=0, le=_EXBIBYTE_MB)
    disk_reserve_mb: int = Field(default=1024, ge=0, le=_EXBIBYTE_MB)
    memory_overcommit: float = Field(default=1.0, gt=0, le=16)
    boot_templates: int = Field(default=4, ge=0, le=64)
    pool_memory_mb: int = derived(
        "an eighth of the machine's memory, at most 4096", defaults.pool_memory_mb, ge=0, le=_EXBIBYTE_MB
    )
    pool_machines: int = Field(default=8, ge=0, le=1024)
    stop_vms_on_down: bool = False

    # Images
    default_image: str = "localhost/workspace:latest"
    registry_auth_file: Path | None = None
    insecure_registries: CommaSeparated = ()
    private_registries: CommaSeparated = ()
    image_max_mb: int = Field(default=20 * 1024, ge=1, le=_EXBIBYTE_MB)
    image_cache_mb: int = Field(default=50 * 1024, ge=1, le=_EXBIBYTE_MB)
    image_pull_seconds: int = Field(default=900, ge=1, le=_YEAR)

    # Moves between hosts
    move_mb_per_second: int = Field(default=100, ge=0, le=_MANY)

    # Places that users name: receivers of webhooks, push services of browsers
    private_receivers: Places = ()
    refused_networks: Networks = ()

    # Deadlines of operations
    create_seconds: int = Field(default=1800, ge=10, le=_YEAR)
    power_seconds: int = Field(default=300, ge=5, le=_YEAR)
    move_seconds: int = Field(default=21600, ge=60, le=_YEAR)
    ready_seconds: int = Field(default=180, ge=5, le=_YEAR)
    retry_seconds: float = Field(default=2.0, ge=0, le=_YEAR)
    webhook_retry_seconds: float = Field(default=5.0, ge=0, le=3600)
    stop_grace_seconds: int = Field(default=20, ge=0, le=_YEAR)
    reconcile_seconds: int = Field(default=60, ge=1, le=_YEAR)
    orphan_grace_seconds: int = Field(default=120, ge=0, le=_YEAR)
    orphan_removals_per_hour: int = Field(default=100, ge=0, le=_MANY)

    # Domains of users, and links to private ports
    edge_host: HostName = derived("the name in `BASE_URL`", lambda data: urlsplit(data["base_url"]).hostname or "")
    edge_addresses: Addresses = ()
    dns_resolvers: Resolvers = ()
    domain_verification: bool = True
    domains_per_account: int = Field(default=100, ge=0, le=_MANY)
    port_links_max: int = Field(default=100, ge=0, le=_MANY)

    # Usage
    metering_seconds: int = Field(default=60, ge=1, le=600)
    billing_seconds: int = Field(default=3600, ge=1, le=_YEAR, validate_default=True)

    # How long audit entries are kept
    activity_days: int = Field(default=400, ge=1, le=36500)

    # Guessing
    login_attempts: int = Field(default=10, ge=1, le=_MANY)
    secret_failures: int = Field(default=100, ge=1, le=1 << 31)

    # Bodies of requests
    body_limit_bytes: int = Field(default=10 * 1024 * 1024, ge=1024, le=1 << 40)
    file_write_limit_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, le=1 << 40)
    file_stream_limit_bytes: int = Field(default=16 * 1024**3, ge=1024, le=1 << 60)

    # Ports and certificates of the names that users bring; port 0: not served
    domains_http_port: int = Field(default=0, ge=0, lt=65536)
    domains_https_port: int = Field(default=0, ge=0, lt=65536)
    domains_keys_port: int = derived(
        "PORT + 1000", lambda data: data["port"] + (1000 if data["port"] <= 64535 else -1000), gt=0, lt=65536
    )
    acme_directory: str = Field(default="", pattern=r"^(https://\S+)?$")
    acme_contact: str = Field(default="", max_length=320, pattern=r"^([^@\s,]+@[^@\s,]+)?$")
    acme_ca_file: str = ""
    acme_orders_per_hour: int = Field(default=100, ge=1, le=_MANY)
    acme_orders_per_account: int = Field(default=25, ge=1, le=_MANY)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the settings of a process with this environment.

        Raise ImproperlyConfigured with one line for each invalid variable.
        """
        if former := [
            f"{variable(old)} is now {variable(new)}." for old, new in RENAMED.items() if variable(old) in environment
        ]:
            raise ImproperlyConfigured("\n".join(former))
        given = {name: environment[variable(name)] for name in cls.model_fields if variable(name) in environment}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            # Values derived from an invalid one are reported too; one line for one mistake is enough.
            invalid = [item for item in error.errors() if item["type"] != "default_factory_not_called"]
            lines = [f"{variable(str(item['loc'][0]))}: {item['msg']}" for item in invalid]
            raise ImproperlyConfigured("\n".join(lines)) from None

    @property
    def run_dir(self) -> Path:
        """Sockets, pid files and generated configuration, under a path short enough for sockets."""
        return self.short_state / "run"

    @property
    def has_own_server(self) -> bool:
        """Return whether the database is on the instance's own server, and not on one that the operator named."""
        return self.database_url == private_url(self.short_state)

    @property
    def has_own_redis(self) -> bool:
        """Return whether Redis is the instance's own, and not one that the operator named."""
        return self.redis_url == own_redis_url(self.short_state, self.secret_key)

    @property
    def cdn_types(self) -> Mapping[str, str]:
        """Return the types under which files of the CDN are delivered, by extension."""
        return content_types()

    def variables(self, *, derived: bool = True) -> dict[str, str]:
        """Return the environment from which another process reads the same settings.

        Only what was given or, with `derived`, made from it: a process keeps the fixed defaults of its own version.
        """
        made = {name for name, field in type(self).model_fields.items() if derived and field.default_factory}
        values = {name: _text(getattr(self, name)) for name in sorted(self.model_fields_set | made)}
        return {variable(name): text for name, text in values.items() if text is not None}

    def shared_variables(self) -> dict[str, str]:
        """Return the settings that machines which join have as this one, but for those that have fixed defaults."""
        names = {variable(name) for name in SHARED}
        return {name: text for name, text in self.variables().items() if name in names}

    @model_validator(mode="before")
    @classmethod
    def _empty_values_are_unset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value != "" or name not in EMPTY_IS_UNSET}

    @field_validator("base_url")
    @classmethod
    def _readable_address(cls, value: str) -> str:
        urlsplit(value).port  # noqa: B018 - raises ValueError
        return value

    @field_validator("billing_seconds")
    @classmethod
    def _at_least_a_tick(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("metering_seconds", 1):
            raise ValueError("A billing cycle must be at least as long as PLATFORM_METERING_SECONDS.")
        return value

    @field_validator("public_url", "sandbox_url", "runtime_url")
    @classmethod
    def _address_of_machines(cls, value: str, info: ValidationInfo) -> str:
        parsers: dict[str | None, Callable[[str], object]] = {
            "public_url": PublicAddress.of, "sandbox_url": SandboxAddress.of, "runtime_url": RuntimeAddress.of,
        }  # fmt: skip
        parsers[info.field_name](value)
        return value

    @field_validator("pages_url")
    @classmethod
    def _page_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        page_addresses(value)
        return value

    @field_validator("cdn_url")
    @classmethod
    def _cdn_address(cls, value: str) -> str:
        CdnAddress.of(value)
        return value.rstrip("/")

    @field_validator("allowed_hosts")
    @classmethod
    def _with_own_name(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """The name in the base URL is how clients reach the service, so it is always an allowed one."""
        name = urlsplit(info.data.get("base_url", "")).hostname
        return value if not name or name in value else (*value, name)


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)


def load_settings() -> Env:
    """Return the settings of this process. Raise ImproperlyConfigured as `Env.from_environment`."""
    return Env.from_environment(os.environ)
