"""Shapes of the log routes' responses for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import Success


class LogEntry(s.Serializer):
    line = s.CharField()
    message = s.CharField(help_text="The same text.")
    timestamp = s.DateTimeField(
        allow_null=True,
        help_text="When the platform read the line; null where it was there already (logs inside the guest).",
    )
    stream = s.ChoiceField(["stdout", "stderr", "console"], help_text="A program's two streams share a log: stdout.")
    source = s.CharField()  # type: ignore[assignment]  # the contract's name


class LogsResponse(Success):
    source = s.CharField()  # type: ignore[assignment]  # the contract's name
    logs = LogEntry(many=True)


class LogFileObject(s.Serializer):
    name = s.CharField()
    size = s.IntegerField(help_text="Bytes.")
    modified = s.DateTimeField()


class LogFilesResponse(Success):
    files = LogFileObject(many=True)
    complete = s.BooleanField(help_text="False while the workspace does not run: its own disk is not looked into.")
