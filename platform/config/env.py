"""Every setting of the platform, typed, from `PLATFORM_*` environment variables.

docs/operations.md has the table. What is wrong in itself (a number that is none) stops the process with a sentence;
what does not fit together is found by the system checks in `config.checks`.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Literal

from django.core.exceptions import ImproperlyConfigured
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from edge.address import PublicAddress


class Env(BaseSettings):
    """Sizes are MiB, times seconds, unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix="PLATFORM_", extra="ignore")

    # The instance
    state: Path = Path("var")
    instance: str = Field(default="000000", pattern=r"^[0-9a-f]{6}$")
    secret_key: str = ""
    secret_key_fallbacks: Annotated[tuple[str, ...], NoDecode] = ()
    debug: bool = False
    base_url: str = "http://localhost:8000"
    public_url: str = "http://{hash}.localhost:8000"
    behind_proxy: bool = False
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ("localhost", "127.0.0.1", "[::1]")
    database_url: str = ""
    redis_url: str = ""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    # The host that this machine is
    host_name: str = Field(default="local", pattern=r"^[a-z0-9-]{1,40}$")
    vm_backend: Literal["libvirt", "fake"] = "libvirt"
    libvirt_uri: str = ""
    accel: Literal["auto", "kvm", "qemu"] = "auto"
    subnet: IPv4Network = IPv4Network("10.200.0.0/20")
    guest_dns: Annotated[tuple[str, ...], NoDecode] = ()
    machines_dir: Path | None = None
    kit_dir: Path | None = None
    images_dir: Path | None = None
    memory_reserve_mb: int = Field(default=512, ge=0)
    disk_reserve_mb: int = Field(default=1024, ge=0)
    memory_overcommit: float = Field(default=1.0, gt=0, le=16)
    stop_vms_on_down: bool = False

    # Images
    default_image: str = "docker.io/library/ubuntu:24.04"
    registry_auth_file: Path | None = None
    insecure_registries: Annotated[tuple[str, ...], NoDecode] = ()
    private_registries: Annotated[tuple[str, ...], NoDecode] = ()
    image_max_mb: int = Field(default=20 * 1024, ge=1)
    image_cache_mb: int = Field(default=50 * 1024, ge=1)
    image_pull_seconds: int = Field(default=900, ge=1)

    # Deadlines of operations
    create_seconds: int = Field(default=1800, ge=10)
    power_seconds: int = Field(default=300, ge=5)
    ready_seconds: int = Field(default=180, ge=5)
    retry_seconds: float = Field(default=2.0, ge=0)
    stop_grace_seconds: int = Field(default=20, ge=0)
    reconcile_seconds: int = Field(default=60, ge=1)
    leftover_grace_seconds: int = Field(default=120, ge=0)
    leftover_removals_per_hour: int = Field(default=100, ge=0)

    # Usage
    metering_seconds: int = Field(default=60, ge=1, le=600)

    # The API
    body_limit_bytes: int = Field(default=10 * 1024 * 1024, ge=1024)
    file_write_limit_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    file_stream_limit_bytes: int = Field(default=16 * 1024**3, ge=1024)
    api_threads: int = Field(default=32, ge=2)
    api_waiters: int = Field(default=24, ge=1)
    streams_max: int = Field(default=4000, ge=1)
    streams_per_account: int = Field(default=1000, ge=1)

    @field_validator(
        "secret_key_fallbacks", "allowed_hosts", "guest_dns", "insecure_registries", "private_registries", mode="before"
    )
    @classmethod
    def _commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("public_url")
    @classmethod
    def _public_address(cls, value: str) -> str:
        PublicAddress.of(value)
        return value

    def path(self, given: Path | None, default: str) -> Path:
        """A path setting, or its place under the state folder."""
        return (given or self.state / default).resolve()


def load() -> Env:
    """Read the environment. Raises ImproperlyConfigured with one line for each setting that is wrong."""
    try:
        return Env()
    except ValidationError as exc:
        lines = [f"PLATFORM_{str(e['loc'][0]).upper()}: {e['msg']}" for e in exc.errors()]
        raise ImproperlyConfigured("\n".join(lines)) from None
