"""`/workspace/:id/overlay` and what is told of its disk. The bytes of files: `content.py`."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.connections import release_connection
from common.errors import ValidationError
from common.openapi import MessageResponse
from common.responses import ok
from common.times import iso, moment
from vmbackend.backend import guest_pool
from vmbackend.guest.session import DiskUsage, Entry, GuestAddress
from workspaces.files import serializers
from workspaces.files.paths import displayed_path, encoded_path, query_path
from workspaces.files.serializers import LIST_LIMIT
from workspaces.guests import address_of, guest_errors
from workspaces.requested import requested_workspace

LIST_SECONDS = 60.0  # a large directory of a slow guest
CALL_SECONDS = 30.0
SYNC_SECONDS = 75.0  # the guest itself is given 60


class FilesViewSet(ViewSet):
    """Directories and the disk they are on."""

    @extend_schema(
        parameters=[
            OpenApiParameter("path", str, description="Absolute; default `/`. Any bytes, percent-encoded."),
            OpenApiParameter("limit", int, description=f"Entries at most, 1 to {LIST_LIMIT}, which is the default."),
            OpenApiParameter("cursor", str, description="`next_cursor` of the answer before."),
        ],
        responses=serializers.ListingResponse,
    )
    def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """A directory's entries by name, at most `limit` of them.

        Where there are more, `truncated` is true, and the same request with `cursor` set to `next_cursor` goes on
        after the last name; entries made or removed meanwhile are in or out by their names. A name that is no UTF-8
        has replacement characters in `name` and `path`, and the true path, percent-encoded, in `encoded_path`.
        A directory whose names together have more than 8 MiB is refused.
        """
        path = query_path(request, default="/")
        query = serializers.ListingQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        limit, after = query.validated_data["limit"], _after(query.validated_data["cursor"])
        address = _address(request, workspace_id)
        with guest_errors():
            entries, more = guest_pool().call(
                address, lambda session: session.list_directory(path, limit=limit, after=after), LIST_SECONDS
            )
        return ok(
            path=displayed_path(path),
            count=len(entries),
            entries=[entry_body(entry) for entry in entries],
            truncated=more,
            next_cursor=_cursor(entries[-1].name) if more and entries else None,
        )

    @extend_schema(responses=serializers.UsageResponse)
    def usage(self, request: ApiRequest, workspace_id: str) -> Response:
        """The writable disk: what was changed since the image. The image itself takes nothing of it."""
        address = _address(request, workspace_id)
        with guest_errors():
            found = guest_pool().call(address, lambda session: session.disk_usage(), CALL_SECONDS)
        return ok(**usage_body(found))

    @extend_schema(request=None, responses=MessageResponse)
    def sync(self, request: ApiRequest, workspace_id: str) -> Response:
        """Write what the guest still holds in memory to its disk. Answers when it is there."""
        address = _address(request, workspace_id)
        with guest_errors():
            guest_pool().call(address, lambda session: session.sync(), SYNC_SECONDS)
        return ok(message="The file system is written to the disk.")


def _address(request: ApiRequest, workspace_id: str) -> GuestAddress:
    address = address_of(requested_workspace(request.user, workspace_id, whole=True))
    release_connection()
    return address


def entry_body(entry: Entry) -> dict[str, Any]:
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
    if (true := encoded_path(entry.path)) is not None:
        body["encoded_path"] = true
    return body


def usage_body(found: DiskUsage) -> dict[str, Any]:
    return {
        "total_bytes": found.total_bytes,
        "used_bytes": found.used_bytes,
        "available_bytes": found.available_bytes,
        "percent": round(100 * found.used_bytes / found.total_bytes, 1) if found.total_bytes else 0.0,
    }


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode()


def _after(cursor: str) -> str:
    """The name after which a page begins. Raises ValidationError."""
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError) as exc:
        raise ValidationError(details={"cursor": ["This is no `next_cursor` of an earlier answer."]}) from exc
