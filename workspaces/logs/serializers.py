"""Queries and responses of the log routes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.openapi import Success
from common.times import iso, moment

MAX_TAIL_LINES = 10_000


class LogQuery(serializers.Serializer[Any]):
    source = serializers.CharField(default="boot", max_length=64)  # type: ignore[assignment]  # the specification's name
    tail_lines = serializers.IntegerField(min_value=1, max_value=MAX_TAIL_LINES, default=100)


class WorkloadLogQuery(serializers.Serializer[Any]):
    tail_lines = serializers.IntegerField(min_value=1, max_value=MAX_TAIL_LINES, default=100)


class StreamQuery(serializers.Serializer[Any]):
    """Query of a stream. `tail_lines` 0: only new lines. The stream holds at most the last 1,000 lines."""

    tail_lines = serializers.IntegerField(min_value=0, max_value=MAX_TAIL_LINES, default=100)


class LogEntry(serializers.Serializer[Any]):
    """Entry of a log, in responses and event streams alike."""

    line = serializers.CharField()
    message = serializers.CharField(help_text="The same text as `line`.")
    timestamp = serializers.DateTimeField(
        allow_null=True,
        help_text="When the guest's logger read the line; for the console, when the host did. Null in a log at a "
        "`log_path`; in an event stream such a line has the time at which it was read.",
    )
    stream = serializers.ChoiceField(
        ["stdout", "stderr", "console"], help_text="In a log at a `log_path` the two streams are one: stdout."
    )
    source = serializers.CharField()  # type: ignore[assignment]  # the contract's name

    # `lines.log_entry` makes the whole entry.
    def to_representation(self, entry: dict[str, Any]) -> dict[str, Any]:
        return entry


class LogsResponse(Success):
    source = serializers.CharField()  # type: ignore[assignment]  # the contract's name
    logs = LogEntry(many=True)


class EpochField(serializers.DateTimeField):
    """Seconds since the epoch, as a guest or a host gives them, as a time."""

    def to_representation(self, value: Any) -> str:
        return iso(moment(value))


class LogFileObject(serializers.Serializer[Any]):
    name = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes.")
    modified = EpochField()


class LogFileResponse(Success):
    name = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of the file.")
    content = serializers.CharField(
        help_text="Its last MiB, from the start of a line. Bytes that are not UTF-8 are replaced."
    )
    truncated = serializers.BooleanField(help_text="Whether there was more.")


class LogFilesResponse(Success):
    files = LogFileObject(many=True)
    complete = serializers.BooleanField(
        help_text="False while the workspace does not run: the logs on its own disk are not listed."
    )
