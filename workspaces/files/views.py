"""`/workspace/:id/overlay` and `/overlay/files`. File bodies are streamed both ways, in constant memory."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest, actor_of
from accounts.permissions import RESOURCE_SCOPES, require
from common.connections import release_connection
from common.errors import (
    DomainError,
    MethodNotAllowed,
    PayloadTooLarge,
    UnsupportedMediaType,
    ValidationError,
)
from common.responses import ok
from common.times import iso
from vmbackend.backend import guest_pool
from vmbackend.guest.session import Entry, GuestAddress, GuestSession
from workspaces import selectors
from workspaces.api import schemas
from workspaces.files.upload import CHUNK, read_upload
from workspaces.files.use import Use
from workspaces.guests import address_of, guest_errors

MAX_PATH = 4096
LIST_LIMIT = 10_000
CALL_SECONDS = 30.0
WRITE_SECONDS = 600.0
RAW = "application/octet-stream"


class RangeNotSatisfiable(DomainError):
    code = "range_not_satisfiable"
    status = 416
    message = "The file does not reach that far."


class FilesViewSet(ViewSet):
    """Directory listings."""

    @extend_schema(
        parameters=[OpenApiParameter("path", str, description="Absolute; default `/`.")],
        responses=schemas.ListingResponse,
    )
    def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """A directory's entries by name; at most 10,000, `truncated` tells that there are more."""
        path = checked_path(request.query_params.get("path") or "/")
        address = address_of(selectors.get(request.user, workspace_id, whole=True))
        release_connection()
        with guest_errors():
            entries, more = guest_pool().call(
                address, lambda session: session.list_directory(path, limit=LIST_LIMIT), CALL_SECONDS
            )
        shown = [entry_body(entry) for entry in entries]
        return ok(path=path, count=len(shown), entries=shown, truncated=more)


def entry_body(entry: Entry) -> dict[str, Any]:
    """Names that are no UTF-8 are shown with replacement characters."""
    body = {
        "name": _shown(entry.name),
        "path": _shown(entry.path),
        "type": entry.type,
        "size": entry.size,
        "mode": entry.mode & 0o7777,
        "modified": iso(_moment(entry.modified)),
    }
    return {**body, "target": _shown(entry.target)} if entry.target is not None else body


def _shown(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _moment(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # the guest may claim any time
        return datetime.fromtimestamp(0, UTC)


def checked_path(path: Any) -> str:
    """An absolute path inside the guest. Raises ValidationError."""
    if not isinstance(path, str) or not path.startswith("/") or len(path) > MAX_PATH or not _is_text(path):
        raise ValidationError(details={"path": [f"An absolute path of at most {MAX_PATH} characters is required."]})
    return path


def _is_text(path: str) -> bool:
    """Whether a path has neither NUL characters nor lone surrogates, which have no bytes."""
    try:
        return b"\0" not in path.encode()
    except UnicodeEncodeError:
        return False


async def overlay_files(request: HttpRequest, workspace_id: str) -> HttpResponseBase:
    """Read (GET) or write (POST) one file. An asynchronous view: bodies flow through it."""
    handler = {"GET": _read, "HEAD": _read, "POST": _write}.get(request.method or "")
    if handler is None:
        raise MethodNotAllowed(headers={"Allow": "GET, HEAD, POST"})
    address = await _address(request, workspace_id)
    return await handler(request, address)


@sync_to_async
def _address(request: HttpRequest, workspace_id: str) -> GuestAddress:
    actor = require(actor_of(request), RESOURCE_SCOPES)
    address = address_of(selectors.get(actor, workspace_id, whole=True))
    release_connection()  # the body may flow for minutes
    return address


@dataclass(frozen=True, slots=True)
class Part:
    """Which bytes of a file are wanted. `length` None: to the end."""

    offset: int = 0
    length: int | None = None
    partial: bool = False


async def _read(request: HttpRequest, address: GuestAddress) -> HttpResponseBase:
    path = checked_path(request.GET.get("path"))
    raw = RAW in request.headers.get("Accept", "")
    with guest_errors():
        entry = await guest_pool().acall(address, lambda session: session.stat(path), CALL_SECONDS)
    part = wanted_part(request.headers.get("Range"), entry.size) if raw else Part()
    chunks = guest_pool().astream(
        address, lambda session: session.read(path, offset=part.offset, length=part.length), CALL_SECONDS
    )
    with guest_errors():
        first = await anext(chunks, b"")  # errors of opening the file come while they can still be answered
    body = _joined(first, chunks, Use(address.machine_id))
    if raw:
        return _raw_response(body, part, entry.size)
    return StreamingHttpResponse(_as_json(body, path), content_type="application/json")


def wanted_part(header: str | None, size: int) -> Part:
    """One range of bytes. More than one, or another unit, is served as the whole file, as HTTP allows.

    Raises RangeNotSatisfiable.
    """
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (header or "").strip())
    if match is None or match.groups() == ("", ""):
        return Part()
    first, last = match.groups()
    if first and last and int(first) > int(last):
        return Part()
    if not first:
        start, end = max(0, size - int(last)), size - 1
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
    if start > end or start >= size:
        raise RangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    return Part(start, end - start + 1, partial=True)


def _raw_response(body: AsyncIterator[bytes], part: Part, size: int) -> StreamingHttpResponse:
    response = StreamingHttpResponse(body, content_type=RAW, status=206 if part.partial else 200)
    response["Accept-Ranges"] = "bytes"
    response["X-Content-Type-Options"] = "nosniff"
    if part.partial and part.length is not None:
        response["Content-Range"] = f"bytes {part.offset}-{part.offset + part.length - 1}/{size}"
    return response


async def _joined(first: bytes, rest: Any, use: Use) -> AsyncIterator[bytes]:
    async with aclosing(rest):
        if first:
            yield first
        async for chunk in rest:
            await use.anote()
            yield chunk


async def _as_json(chunks: AsyncIterator[bytes], path: str) -> AsyncIterator[bytes]:
    """`{success, path, encoding, content, size}`; the size comes last, when it is known."""
    yield f'{{"success": true, "path": {json.dumps(_shown(path))}, "encoding": "base64", "content": "'.encode()
    size, rest = 0, b""
    async for chunk in chunks:
        size += len(chunk)
        whole = rest + chunk
        even = len(whole) - len(whole) % 3
        rest = whole[even:]
        yield base64.b64encode(whole[:even])
    yield base64.b64encode(rest) + f'", "size": {size}}}'.encode()


async def _write(request: HttpRequest, address: GuestAddress) -> HttpResponseBase:
    """The whole body is checked before the guest is touched: a broken upload changes nothing."""
    use = Use(address.machine_id)
    with tempfile.TemporaryFile() as spool:
        path = checked_path(await asyncio.to_thread(_receive, request, spool, use))
        with guest_errors():
            size = await guest_pool().apush(
                address, lambda session, chunks: _put(session, path, chunks), _spooled(spool, use), WRITE_SECONDS
            )
    return JsonResponse({"success": True, "path": path, "size": size})


def _receive(request: HttpRequest, spool: IO[bytes], use: Use) -> Any:
    """Take the body into the spool; returns the path it names. JSON, or raw bytes with the path in the query."""

    def read(size: int) -> bytes:
        use.note()
        return request.read(size)

    media_type = (request.content_type or "application/json").lower()
    if media_type == RAW:
        _copy(read, spool, settings.FILE_WRITE_LIMIT)
        return request.GET.get("path")
    if media_type != "application/json":
        raise UnsupportedMediaType(f"Send application/json, or {RAW} with the path in the query.")
    return read_upload(read, spool, settings.FILE_WRITE_LIMIT).fields.get("path")


def _copy(read: Callable[[int], bytes], spool: IO[bytes], limit: int) -> None:
    size = 0
    while chunk := read(CHUNK):
        size += len(chunk)
        if size > limit:
            raise PayloadTooLarge(f"A file of at most {limit} bytes can be written.")
        spool.write(chunk)
    spool.seek(0)


async def _put(session: GuestSession, path: str, chunks: AsyncIterator[bytes]) -> int:
    return await session.write(path, chunks)


async def _spooled(spool: IO[bytes], use: Use) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(spool.read, CHUNK):
        await use.anote()
        yield chunk
