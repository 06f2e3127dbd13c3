"""Bodies of the account level, and the conversion of a create request for the services."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.conf import settings
from rest_framework import serializers as s

from common.errors import ValidationError
from common.fields import StrictBoolean, StrictChar, StrictFloat
from common.openapi import Success
from common.pagination import PageQuery
from common.serializers import ResponseSerializer, Timestamp
from edge.addresses import sandbox_address
from sandboxes.ids import sandbox_id_of
from sandboxes.states import OF_WORKSPACE, SandboxStatus
from vmbackend.host_states import SHOWN_STATES
from workspaces.crud.config import Config
from workspaces.crud.placement_fields import Placement
from workspaces.crud.serializers import new_workspace
from workspaces.crud.services import NewWorkspace
from workspaces.models import Workspace
from workspaces.models.workspace import Mode
from workspaces.serializers import Failure
from workspaces.snapshots.serializers import EntryError
from workspaces.states import Status

SIZES = ("cpus", "memory_mb", "disk_size_mb")
PASSED_ON = (
    "name", "image", "snapshot", "memory", "namespace", "placement", "config", "wait_ready", "ready_timeout_seconds",
    "idempotency_key", *SIZES,
)  # fmt: skip


class CreateSandboxRequest(s.Serializer[Any]):
    """`POST /sandbox`. Fields that a workspace takes as well are checked as for a workspace."""

    name = StrictChar(help_text="At most 255 characters.")
    image = StrictChar(required=False, allow_null=True, help_text="Default: the platform's.")
    template = StrictChar(
        required=False, allow_null=True, max_length=120, help_text="The `preset` of an entry of the image catalog."
    )
    namespace = StrictChar(required=False, allow_null=True, help_text="The slug; default: the default namespace.")
    snapshot = StrictChar(
        required=False, allow_null=True, max_length=128, help_text="A snapshot's id or name, in place of an image."
    )
    memory = StrictBoolean(required=False, allow_null=True, help_text="As for a workspace.")
    placement = Placement(required=False, allow_null=True, help_text="On which host; default: the platform's choice.")
    config = Config(required=False, help_text="As for a workspace. With a `ttl` the sandbox is temporary.")
    autoStart = StrictBoolean(default=True, help_text="False: its machine is made and stays off (`stopped`).")
    wait_ready = StrictBoolean(default=True)
    ready_timeout_seconds = StrictFloat(min_value=1, max_value=600, default=600)
    idempotency_key = StrictChar(required=False, max_length=255)


class _OwnFields(s.Serializer[Any]):
    name = StrictChar()  # its length is checked as a workspace's
    template = StrictChar(required=False, allow_null=True, max_length=120)
    autoStart = StrictBoolean(default=True)


def new_sandbox(body: dict[str, Any]) -> tuple[NewWorkspace, dict[str, Any]]:
    """Return the service input for a create request, and the validated fields that control the response.

    A sandbox is permanent, so that it can sleep when unused, unless its config has a ttl. Raise what
    `workspaces.crud.serializers.new_workspace` raises.
    """
    checked = _OwnFields(data=body)
    checked.is_valid(raise_exception=True)
    own = checked.validated_data
    passed = {name: body[name] for name in PASSED_ON if name in body}
    if passed.get("image", "") is None:
        del passed["image"]
    config = body.get("config")
    temporary = isinstance(config, dict) and bool(config.get("ttl"))
    passed["mode"] = (Mode.TEMPORARY if temporary else Mode.PERMANENT).value
    new, data = new_workspace({**passed, "preset": own.get("template")})
    return replace(new, slug=None, start=own["autoStart"]), data


def as_template_error(error: ValidationError) -> ValidationError:
    """Return an error of the catalog about a preset, which is called `template` here."""
    details = dict(error.details or {})
    if "preset" in details:
        details["template"] = [f"{message}".replace("preset", "template") for message in details.pop("preset")]
    return ValidationError(error.message, details=details)


class ListSandboxesQuery(PageQuery):
    status = s.ChoiceField(SandboxStatus.choices, required=False)
    namespace = s.CharField(required=False, max_length=128)


class SandboxObject(ResponseSerializer):
    """A sandbox, made from the row of its machine as `sandboxes.selectors` gave it."""

    id = s.CharField()
    name = s.CharField()
    url = s.CharField(help_text="The address of the sandbox level.")
    status = s.ChoiceField(SandboxStatus.choices)
    namespace = s.CharField(source="namespace_slug")
    image = s.CharField()
    workspace_id = s.CharField(source="pk", help_text="The id of its machine, for the routes of `/workspace`.")
    workspace_status = s.ChoiceField(
        Status.choices, source="status", help_text="The status of its machine, in more detail."
    )
    host = s.CharField(allow_null=True, source="shown_host.name", help_text="The name of its host.")
    host_state = s.ChoiceField(
        SHOWN_STATES,
        allow_null=True,
        source="shown_host.state",
        help_text="While it is `unreachable`, `status` is what was last known.",
    )
    host_since = Timestamp(allow_null=True, source="shown_host.since", help_text="Since when it is in that state.")
    error = Failure(allow_null=True, source="failure", help_text="Why the last operation failed, if it did.")
    created_at = Timestamp()

    def read_id(self, row: Workspace) -> str:
        return sandbox_id_of(row.pk)

    def read_url(self, row: Workspace) -> str:
        return sandbox_address(settings.ENV.sandbox_url).url(sandbox_id_of(row.pk))

    def read_status(self, row: Workspace) -> str:
        return OF_WORKSPACE[Status(row.status)].value


class NewSandboxObject(SandboxObject):
    token = s.CharField(
        allow_null=True,
        help_text="Returned in this response only. Null if the idempotency key was used before: if the first "
        "response was lost, regenerate the token.",
    )

    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Return the body of a `CreatedSandbox`."""
        return {**SandboxObject(instance.workspace).data, "token": instance.token}


class SandboxResponse(Success):
    sandbox = SandboxObject()


class SandboxGoingOnResponse(Success):
    accepted = s.BooleanField(help_text="The operation continues; reads show its progress.")
    sandbox = SandboxObject()


class NewSandboxResponse(Success):
    sandbox = NewSandboxObject()


class SandboxForkEntry(ResponseSerializer):
    """One copy: the sandbox, or why it was not made."""

    sandbox = NewSandboxObject(required=False)
    error = EntryError(required=False)


class SandboxForksResponse(Success):
    forks = SandboxForkEntry(many=True)


class SandboxesResponse(Success):
    sandboxes = SandboxObject(many=True)
    total = s.IntegerField()
    page = s.IntegerField()
    limit = s.IntegerField()


class SandboxIdObject(ResponseSerializer):
    id = s.CharField()


class SandboxTokenResponse(Success):
    token = s.CharField(help_text="Returned in this response only.")
    sandbox = SandboxIdObject()


class SandboxMetrics(ResponseSerializer):
    cpu_usage = s.FloatField(help_text="Percent of the CPUs that it has.")
    memory_usage = s.FloatField(help_text="Percent of the memory that it has.")
    disk_usage = s.FloatField(help_text="Percent of its writable disk, as reported by the guest.")
    uptime = s.IntegerField(help_text="Seconds since the last start; 0 while it does not run.")


class SandboxMetricsResponse(Success):
    metrics = SandboxMetrics()
