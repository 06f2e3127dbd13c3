"""Shapes of the responses of `/overlay` for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import Success


class FileEntry(s.Serializer):
    name = s.CharField()
    path = s.CharField()
    type = s.ChoiceField(["file", "directory", "symlink", "other"])
    size = s.IntegerField(help_text="Bytes, as the guest says; 0 for most of what the kernel makes up (/proc).")
    mode = s.IntegerField(help_text="Permission bits.")
    modified = s.DateTimeField()
    target = s.CharField(required=False, help_text="Of a symlink, as it is written there.")
    encoded_path = s.CharField(required=False, help_text="Where the path is no UTF-8: its bytes, percent-encoded.")


class ListingResponse(Success):
    path = s.CharField()
    count = s.IntegerField(help_text="Entries in this answer.")
    entries = FileEntry(many=True)
    truncated = s.BooleanField(help_text="Whether there are more.")
    next_cursor = s.CharField(allow_null=True)


class UsageResponse(Success):
    total_bytes = s.IntegerField()
    used_bytes = s.IntegerField()
    available_bytes = s.IntegerField()
    percent = s.FloatField(help_text="Used of total, 0 to 100.")
