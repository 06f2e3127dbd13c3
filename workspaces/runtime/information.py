"""The description of the runtime, and of what it can do (wire contract, section 4b)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from common.openapi import Success, refused
from common.responses import respond
from common.serializers import ResponseSerializer
from vmbackend.guest.session import GuestSession
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet

PROTOCOL_VERSION = 1
CAPABILITIES: tuple[str, ...] = ("exec", "files", "proxy", "search", "terminals", "transfer", "watchers")
SECONDS = 10.0
# Of the environment that commands have, which is the image's and the workspace's own.
_ASK = 'printf "%s\\n" "$HOME" "${SHELL:-/bin/sh}"; uname -m; getconf _NPROCESSORS_ONLN || nproc'
NOT_RUNNING = refused({409: "`vm_not_running`"})


class HealthResponse(Success):
    status = serializers.CharField(help_text="`ok`.")


class RuntimeDescription(ResponseSerializer):
    os = serializers.CharField(help_text="`linux`.")
    arch = serializers.CharField()
    cpus = serializers.IntegerField()
    home = serializers.CharField(help_text="The directory where commands begin.")
    shell = serializers.CharField()
    protocol_version = serializers.IntegerField()
    capabilities = serializers.ListField(child=serializers.CharField())


class RuntimeResponse(Success, RuntimeDescription):
    """The runtime of the workspace."""


class RuntimeTarget(ResponseSerializer):
    id = serializers.CharField()
    local = serializers.BooleanField()
    available = serializers.BooleanField()
    version = serializers.IntegerField()
    capabilities = serializers.ListField(child=serializers.CharField())
    runtime = RuntimeDescription()


class RuntimesResponse(Success):
    version = serializers.IntegerField()
    default_target = serializers.CharField()
    capabilities = serializers.ListField(child=serializers.CharField())
    aliases = serializers.DictField(child=serializers.CharField())
    targets = RuntimeTarget(many=True)


class InformationViewSet(RuntimeViewSet):
    """The runtime itself."""

    @extend_schema(responses={200: HealthResponse, **NOT_RUNNING})
    async def health(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Return `ok` if the machine runs and answers. One that sleeps is woken."""
        guest = await self.guest()
        await guest.call(describe_guest, SECONDS)
        return respond(HealthResponse, status="ok")

    @extend_schema(responses={200: RuntimeResponse, **NOT_RUNNING})
    async def runtime(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Return what runs inside the workspace, and what can be done there."""
        guest = await self.guest()
        return respond(RuntimeResponse, **await guest.call(describe_guest, SECONDS))

    @extend_schema(responses={200: RuntimesResponse, **NOT_RUNNING})
    async def runtimes(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Return the runtimes that this address leads to: one. Every route is also below `/runtimes/default`."""
        guest = await self.guest()
        described = await guest.call(describe_guest, SECONDS)
        target = {
            "id": "default", "local": True, "available": True, "version": PROTOCOL_VERSION,
            "capabilities": list(CAPABILITIES), "runtime": described,
        }  # fmt: skip
        return respond(
            RuntimesResponse,
            version=PROTOCOL_VERSION,
            default_target="default",
            capabilities=list(CAPABILITIES),
            aliases={"local": "default"},
            targets=[target],
        )


async def describe_guest(session: GuestSession) -> dict[str, object]:
    """Return what a guest says of itself. Its answers are as true as the guest is honest."""
    result = await session.execute(_ASK, timeout=SECONDS)
    home, shell, arch, cpus = (*result.stdout.decode(errors="replace").splitlines(), "", "", "", "")[:4]
    return {
        "os": "linux", "arch": arch, "cpus": int(cpus) if cpus.isascii() and cpus.isdecimal() else 1,
        "home": home or "/", "shell": shell, "protocol_version": PROTOCOL_VERSION, "capabilities": list(CAPABILITIES),
    }  # fmt: skip
