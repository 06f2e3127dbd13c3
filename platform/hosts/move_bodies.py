"""Bodies of moves and drains (wire contract, section 11)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from common.fields import StrictBoolean, StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import ResponseSerializer, Timestamp
from hosts.selectors import workspace_count
from workspaces.models import Drain
from workspaces.models.operation import OperationState
from workspaces.moves.selectors import leaving_count

STEPS = ("reserve", "base", "disk", "memory", "commit", "clean")
_YEAR = 366 * 86400


class MoveWorkspaceRequest(s.Serializer[Any]):
    to = StrictChar(required=False, max_length=40, help_text="Id or name of the host; default: the best one.")
    memory = StrictBoolean(default=True, help_text="False: a sleeping or running one starts anew from its disk.")
    address = s.ChoiceField(
        choices=["new"], required=False, help_text="`new`: also if the workspace is to keep its address."
    )
    reason = StrictChar(min_length=1, max_length=500)


class MoveError(s.Serializer[Any]):
    code = s.CharField()
    message = s.CharField()
    differs = s.ListField(child=s.DictField(), help_text="With `host_unfit`: what is another on both hosts.")


class MoveObject(ResponseSerializer):
    """A move. `standstill_seconds`: from the stop of a machine that ran until it runs again; null before."""

    id = s.CharField()
    workspace_id = s.CharField()
    state = s.ChoiceField(choices=OperationState.values)
    step = s.ChoiceField(choices=STEPS)
    source = s.CharField()  # type: ignore[assignment]  # of the base class
    to = s.CharField(source="target")
    bytes_total = s.IntegerField()
    bytes_done = s.IntegerField()
    standstill_seconds = s.FloatField(allow_null=True)
    error = MoveError(allow_null=True)
    created_at = Timestamp()
    finished_at = Timestamp(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """Return the fields, of which one has a name that is a word of Python."""
        fields = super().get_fields()
        shown: dict[str, Any] = {"from" if name == "source" else name: field for name, field in fields.items()}
        shown["from"].source = "source"
        return shown


class MoveResponse(Success):
    operation = MoveObject()


class DrainHostRequest(s.Serializer[Any]):
    reason = StrictChar(min_length=1, max_length=500)
    deadline_seconds = StrictInteger(required=False, min_value=1, max_value=_YEAR)
    memory = s.ChoiceField(choices=["keep", "drop"], default="keep", help_text="`drop`: sleeping ones start anew.")
    running = s.ChoiceField(
        choices=["move", "wait"],
        default="move",
        help_text="`wait`: running ones are moved when they stop or sleep, or at the deadline.",
    )


class DrainRefusal(s.Serializer[Any]):
    workspace_id = s.CharField()
    code = s.CharField()
    message = s.CharField()


class DrainObject(ResponseSerializer):
    """A drain as staff asked for it, and how far it is. `refusals`: what could not be moved at the last look."""

    host = s.CharField()
    state = s.ChoiceField(choices=["draining", "done"])
    memory = s.ChoiceField(choices=["keep", "drop"])
    running = s.ChoiceField(choices=["move", "wait"])
    deadline_at = Timestamp(allow_null=True)
    workspaces_left = s.IntegerField()
    moves = s.IntegerField(help_text="Under way.")
    refusals = DrainRefusal(many=True)
    reason = s.CharField()
    created_at = Timestamp()
    ended_at = Timestamp(allow_null=True)

    def read_host(self, drain: Drain) -> str:
        return drain.host.name

    def read_state(self, drain: Drain) -> str:
        return "done" if drain.ended_at else "draining"

    def read_memory(self, drain: Drain) -> str:
        return "keep" if drain.memory else "drop"

    def read_running(self, drain: Drain) -> str:
        return "wait" if drain.waits else "move"

    def read_workspaces_left(self, drain: Drain) -> int:
        return workspace_count(drain.host)

    def read_moves(self, drain: Drain) -> int:
        return leaving_count(drain.host)

    def read_refusals(self, drain: Drain) -> list[dict[str, str]]:
        return [{"workspace_id": key, **refusal} for key, refusal in drain.refusals.items()]
