"""System checks: settings that are valid each but do not fit together. Run by every management command."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from config.env import variable
from edge.addresses import PublicAddress, RuntimeAddress, SandboxAddress
from vmbackend.power import GUEST_END_SECONDS

SOCKET_PATH_MAX = 107


@register()
def settings_fit_together(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Return messages; each names the environment variable and what to do."""
    env = settings.ENV
    found = _keys(env)
    if env.api_waiters >= env.api_threads:
        found.append(
            Error(
                "PLATFORM_API_WAITERS must be below PLATFORM_API_THREADS.",
                hint="Requests that wait for a machine would take every thread.",
                id="platform.E002",
            )
        )
    if env.subnet.prefixlen > 28 or not env.subnet.is_private:
        found.append(Error("PLATFORM_SUBNET must be a private network of /28 or larger.", id="platform.E003"))
    if settings.REDIS_URL.startswith("unix://") and len(urlsplit(settings.REDIS_URL).path) > SOCKET_PATH_MAX:
        found.append(Error("The Redis socket's path is too long.", hint="Shorten PLATFORM_STATE.", id="platform.E004"))
    base, public = urlsplit(settings.BASE_URL).hostname or "", PublicAddress.of(env.public_url)
    if not settings.BASE_URL.startswith(("http://", "https://")) or not base:
        found.append(Error("PLATFORM_BASE_URL must be http:// or https:// and a name.", id="platform.E005"))
    if urlsplit(settings.REDIS_URL).scheme not in ("redis", "rediss", "unix"):
        found.append(Error("PLATFORM_REDIS_URL must begin with unix://, redis:// or rediss://.", id="platform.E008"))
    if base.endswith(public.suffix):
        found.append(
            Error(
                "PLATFORM_BASE_URL lies below PLATFORM_PUBLIC_URL's domain.",
                hint="Every name there is a workspace's; give the platform a name beside it.",
                id="platform.E007",
            )
        )
    if env.stop_grace_seconds + GUEST_END_SECONDS >= env.power_seconds:
        least = f"PLATFORM_POWER_SECONDS must be more than {GUEST_END_SECONDS} s above PLATFORM_STOP_GRACE_SECONDS."
        hint = "A machine takes that long to end after the grace time of its programs."
        found.append(Error(least, hint=hint, id="platform.E006"))
    return found


def _keys(env: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if not env.secret_key and not env.data_key and not env.debug:
        found.append(Warning("PLATFORM_SECRET_KEY is not set.", hint="`make run` makes one.", id="platform.W001"))
    for name in ("secret_key", "data_key"):
        if 0 < len(getattr(env, name)) < 32:
            found.append(Error(f"{variable(name)} is shorter than 32 characters.", id="platform.E001"))
    return found


@register()
def host_address_is_no_machines(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that the address of this host is none that its machines may have."""
    env = settings.ENV
    if not env.host_address or IPv4Address(env.host_address) not in env.subnet:
        return []
    return [Error("PLATFORM_HOST_ADDRESS lies in PLATFORM_SUBNET, which is the machines'.", id="platform.E012")]


@register()
def machine_names_are_served(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check the names of sandboxes and of workspaces by host: the edge serves them below the domain of the public
    ports. A name for all workspaces is one of its own.
    """
    env = settings.ENV
    public, runtime = PublicAddress.of(env.public_url), RuntimeAddress.of(env.runtime_url)
    found: list[CheckMessage] = []
    if SandboxAddress.of(env.sandbox_url).suffix not in ("", public.suffix):
        found.append(_not_below("sandbox_url", public, "platform.E009"))
    if runtime.by_label and f".{runtime.host}" != public.suffix:
        found.append(_not_below("runtime_url", public, "platform.E010"))
    elif runtime.host and f".{runtime.host}".endswith(public.suffix) and not runtime.by_label:
        message = "The host name of PLATFORM_RUNTIME_URL lies below PLATFORM_PUBLIC_URL's domain."
        hint = "Every name there is a workspace's; give the runtime a name beside it, or one for each workspace."
        found.append(Error(message, hint=hint, id="platform.E011"))
    return found


def _not_below(setting: str, public: PublicAddress, id: str) -> Error:
    message = f"The host names of {variable(setting)} do not lie below PLATFORM_PUBLIC_URL's domain."
    return Error(message, hint=f"Its names end with {public.suffix} here.", id=id)
