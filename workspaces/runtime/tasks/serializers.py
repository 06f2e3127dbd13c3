"""Requests and responses of the routes of tasks."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.fields import AnyField, StrictBoolean, StrictFloat, StrictInteger
from common.openapi import Success
from common.serializers import ResponseSerializer
from vmbackend.guest.hold.task_record import TaskStatus
from workspaces.data_plane.fields import ArgumentField, EnvironmentField, PathField
from workspaces.fields import CMD_BYTES, CMD_ITEMS
from workspaces.runtime.tasks.words import AUTO, MODES, words_of

WAIT_SECONDS, STREAM_SECONDS, TTL_SECONDS = 600, 604_800, 86_400
STATUSES = [status.name.lower() for status in TaskStatus]


@extend_schema_field({"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]})
class WordsField(AnyField):
    """Words of a command, or one string for `sh -c`."""

    def to_internal_value(self, data: Any) -> str | list[str]:
        words = [data] if isinstance(data, str) else data
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise serializers.ValidationError("Give an array of strings, or one string.")
        if not words or not words[0]:
            raise serializers.ValidationError("The command must not be empty.")
        if any("\0" in word for word in words):
            raise serializers.ValidationError("NUL characters are not accepted.")
        if len(words) > CMD_ITEMS or sum(len(word.encode("utf-8", "replace")) for word in words) > CMD_BYTES:
            raise serializers.ValidationError(f"At most {CMD_ITEMS} items and {CMD_BYTES} bytes.")
        found: str | list[str] = data
        return found


class TaskRequest(serializers.Serializer[Any]):
    """The fields that both kinds of start have."""

    cmd = WordsField()
    exec_mode = serializers.ChoiceField(
        MODES,
        default=AUTO,
        help_text="`direct` executes the words, `shell` gives them, joined by blanks, to `sh -c`. `auto` does that for "
        "a single word with white space or a character of the shell, and executes others. A string is for `sh -c`, "
        "but with `direct`.",
    )
    ttl_seconds = StrictInteger(
        min_value=0, max_value=TTL_SECONDS, default=600, help_text="For how long the task is kept after its end."
    )
    keep_logs = StrictBoolean(
        default=True, help_text="Without it the log goes with the task's end, once those who follow it have it."
    )
    env = EnvironmentField(required=False, default=dict)
    working_dir = PathField(
        required=False, default=None, help_text="Default: the image's working directory, else the user's home."
    )
    user = ArgumentField(
        required=False,
        default="",
        max_bytes=64,
        help_text="A name or number, with `:group` or without. Default: the image's user, else root.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return attrs | {"words": words_of(attrs["cmd"], attrs["exec_mode"])}


class RunTaskRequest(TaskRequest):
    """A task whose end the response waits for."""

    timeout_seconds = StrictFloat(min_value=1, max_value=WAIT_SECONDS, default=60)


class FollowedTaskRequest(TaskRequest):
    """A task whose output the response is."""

    timeout_seconds = StrictFloat(
        min_value=1, max_value=STREAM_SECONDS, required=False, default=None, help_text="Default: none."
    )


class TaskQuery(serializers.Serializer[Any]):
    task_id = serializers.CharField(max_length=18)
    offset = serializers.IntegerField(
        required=False,
        default=None,
        min_value=0,
        max_value=1 << 62,
        help_text="The offset of the first byte, in both outputs together. Default: that of `Last-Event-ID`, else the "
        "oldest that is kept.",
    )

    def validate_task_id(self, value: str) -> str:
        if not (value.isascii() and value.isdecimal()):
            raise serializers.ValidationError("The id of a task has digits only.")
        return value


class TaskInputQuery(serializers.Serializer[Any]):
    eof = serializers.BooleanField(default=False, help_text="The input ends after these bytes, which may be none.")


class TaskShort(ResponseSerializer):
    """A task without its outputs. Its times are those of the machine's clock."""

    id = serializers.CharField(help_text="Digits; never given twice in a workspace.")
    command = serializers.ListField(child=serializers.CharField(), help_text="What is executed; the first 4 KiB of it.")
    status = serializers.ChoiceField(STATUSES)
    guest_pid = serializers.IntegerField()
    exit_code = serializers.IntegerField(
        allow_null=True, help_text="128+N if signal N ended it; 124 at its deadline; null if it has none."
    )
    log_truncated = serializers.BooleanField(help_text="Part of the output is gone.")
    error = serializers.CharField(
        required=False, help_text="Why it failed; `interrupted` if its machine or keeper died."
    )
    timed_out = serializers.BooleanField()
    created_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    exited_at = serializers.DateTimeField(allow_null=True)
    ttl_seconds = serializers.IntegerField()


class TaskObject(TaskShort):
    """A task with the end of its outputs."""

    stdout = serializers.CharField(help_text="Its last 1 MiB, as text; bytes that are not UTF-8 are replaced.")
    stderr = serializers.CharField(help_text="As `stdout`.")
    truncated = serializers.BooleanField(help_text="The task has written more than is shown.")


class TaskResponse(Success, TaskObject):
    """A task at top level."""


class TasksResponse(Success):
    tasks = TaskShort(many=True)


class TaskRemovedResponse(Success):
    message = serializers.CharField()
    task = TaskShort()


class TasksRemovedResponse(Success):
    deleted = serializers.IntegerField()


class TaskInputResponse(Success):
    bytes_written = serializers.IntegerField()
