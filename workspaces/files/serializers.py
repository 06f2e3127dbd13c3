"""Shapes of the responses of `/overlay` for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers

from common.openapi import Success

LIST_LIMIT = 10_000


class ListingQuery(serializers.Serializer):
    limit = serializers.IntegerField(min_value=1, max_value=LIST_LIMIT, default=LIST_LIMIT)
    cursor = serializers.CharField(required=False, default="", allow_blank=True, max_length=2048)


class FileEntry(serializers.Serializer):
    name = serializers.CharField()
    path = serializers.CharField()
    type = serializers.ChoiceField(["file", "directory", "symlink", "other"])
    size = serializers.IntegerField(
        help_text="Bytes, as the guest says; 0 for most of what the kernel makes up (/proc)."
    )
    mode = serializers.IntegerField(help_text="Permission bits.")
    modified = serializers.DateTimeField()
    target = serializers.CharField(required=False, help_text="Of a symlink, as it is written there.")
    encoded_path = serializers.CharField(
        required=False, help_text="Where the path is no UTF-8: its bytes, percent-encoded."
    )


class ListingResponse(Success):
    path = serializers.CharField()
    count = serializers.IntegerField(help_text="Entries in this answer.")
    entries = FileEntry(many=True)
    truncated = serializers.BooleanField(help_text="Whether there are more.")
    next_cursor = serializers.CharField(allow_null=True)


class UsageResponse(Success):
    total_bytes = serializers.IntegerField()
    used_bytes = serializers.IntegerField()
    available_bytes = serializers.IntegerField()
    percent = serializers.FloatField(help_text="Used of total, 0 to 100.")
