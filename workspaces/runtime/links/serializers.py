"""Requests and responses of links to files."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import StrictInteger
from common.openapi import Success
from workspaces.data_plane.fields import PathField

READ, REPLACE = "GET", "PUT"
SHORTEST, LONGEST = 60, 86_400


class FileLinkRequest(serializers.Serializer[Any]):
    path = PathField()
    method = serializers.ChoiceField((READ, REPLACE), help_text="`GET` reads the file, `PUT` replaces it.")
    ttl_seconds = StrictInteger(min_value=SHORTEST, max_value=LONGEST)
    max_bytes = StrictInteger(
        min_value=1, max_value=1 << 53, required=False, default=None, help_text="Of a file that is sent; with `PUT`."
    )


class FileLinkResponse(Success):
    url = serializers.CharField(
        help_text="Whoever has it needs no other credential. It ends with a rotation of the tokens."
    )
    expires_at = serializers.DateTimeField()


class LinkedFileResponse(Success):
    size = serializers.IntegerField(help_text="Of the file in bytes.")
