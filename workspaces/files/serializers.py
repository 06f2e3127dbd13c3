"""Queries and responses of `/overlay`."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from rest_framework import serializers

from common.openapi import Success
from common.times import iso, moment
from vmbackend.guest.session import Entry
from workspaces.files.paths import displayed_path, encoded_path

LIST_LIMIT = 10_000


class ListingQuery(serializers.Serializer[Any]):
    """Query of a directory. `cursor` becomes the name after which the page begins."""

    limit = serializers.IntegerField(min_value=1, max_value=LIST_LIMIT, default=LIST_LIMIT)
    cursor = serializers.CharField(required=False, default="", allow_blank=True, max_length=2048)

    def validate_cursor(self, value: str) -> str:
        try:
            name = base64.b64decode(value, altchars=b"-_", validate=True).decode("utf-8", "surrogateescape")
        except (binascii.Error, ValueError) as exc:
            raise serializers.ValidationError("This is not a `next_cursor` of an earlier response.") from exc
        if "\0" in name:
            raise serializers.ValidationError("This is not a `next_cursor` of an earlier response.")
        return name


def cursor_after(name: str) -> str:
    """Return the cursor of the page after this name."""
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode()


class FileEntry(serializers.Serializer[Any]):
    """Entry of a directory."""

    name = serializers.CharField()
    path = serializers.CharField()
    type = serializers.ChoiceField(["file", "directory", "symlink", "other"])
    size = serializers.IntegerField(
        help_text="Bytes, as the guest says; 0 for most virtual files of the kernel (/proc)."
    )
    mode = serializers.IntegerField(help_text="Permission bits.")
    modified = serializers.DateTimeField()
    target = serializers.CharField(required=False, help_text="The target of a symlink, as it is written there.")
    encoded_path = serializers.CharField(
        required=False, help_text="If the path is not UTF-8: its bytes, percent-encoded."
    )

    # Made without a call for each field, because a page has up to LIST_LIMIT entries.
    def to_representation(self, entry: Entry) -> dict[str, Any]:
        body = {
            "name": displayed_path(entry.name),
            "path": displayed_path(entry.path),
            "type": entry.type,
            "size": entry.size,
            "mode": entry.mode & 0o7777,
            "modified": iso(moment(entry.modified)),
        }
        if entry.target is not None:
            body["target"] = displayed_path(entry.target)
        if (encoded := encoded_path(entry.path)) is not None:
            body["encoded_path"] = encoded
        return body


class ListingResponse(Success):
    path = serializers.CharField()
    count = serializers.IntegerField(help_text="Entries in this response.")
    entries = FileEntry(many=True)
    truncated = serializers.BooleanField(help_text="Whether there are more.")
    next_cursor = serializers.CharField(allow_null=True)


class PercentField(serializers.FloatField):
    """Used part of a `DiskUsage`, in percent."""

    def to_representation(self, value: Any) -> Any:
        return round(100 * value.used_bytes / value.total_bytes, 1) if value.total_bytes else 0.0


class UsageResponse(Success):
    """Use of the writable disk (`DiskUsage`)."""

    total_bytes = serializers.IntegerField()
    used_bytes = serializers.IntegerField()
    available_bytes = serializers.IntegerField()
    percent = PercentField(source="*", help_text="Used of total, 0 to 100.")


# This class only documents the body, which `content.py` streams.
class FileContent(Success):
    """A file as JSON."""

    path = serializers.CharField()
    encoding = serializers.ChoiceField(["base64"])
    content = serializers.CharField()
    size = serializers.IntegerField()


# This class only documents the body, which `upload.py` parses in constant memory.
class FileWrite(serializers.Serializer[Any]):
    """A file to write, as JSON."""

    path = serializers.CharField()
    content = serializers.CharField(help_text="Base64, of at most 64 MiB decoded.")


class FileWritten(Success):
    path = serializers.CharField()
    size = serializers.IntegerField()
