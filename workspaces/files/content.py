"""`/workspace/:id/overlay/files`: the bytes of one file, streamed both ways in constant memory."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import IO, Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.response import Response

from common.async_threads import in_body_thread
from common.body_rules import RAW, BodyRule, is_raw
from common.errors import PayloadTooLarge, UnsupportedMediaType
from common.streaming_body import body_chunks
from common.watched_bodies import BodyGrant, granted_chunks, while_granted
from vmbackend.errors import GuestPathNotFound
from vmbackend.guest.session import ANY_CONTENT, Entry, GuestAddress, GuestSession
from workspaces import errors
from workspaces.conditions import Part, Validators, exactly_sized, wanted_part
from workspaces.files.paths import checked_path, displayed_path, query_mode, query_path
from workspaces.files.serializers import FileWritten
from workspaces.files.upload import CHUNK, read_upload
from workspaces.guests import call_guest, open_file, push_guest
from workspaces.last_used import TransferUse

CALL_SECONDS = 30.0
READ_SECONDS = 150.0  # for one chunk; the guest's disk may be busy with earlier writes
WRITE_SECONDS = 600.0  # of a body that was received completely
JSON = "application/json"
Opened = Callable[[Part], Awaitable[AsyncIterator[bytes]]]
MODE_HEADER = "X-File-Mode"
# As base64, which is a third longer than the file.
FILES_IN_JSON = BodyRule(stored_bytes=lambda: settings.FILE_WRITE_LIMIT * 4 // 3 + 64 * 1024)
WRITTEN_FILES = replace(FILES_IN_JSON, streamed_bytes=lambda: settings.FILE_STREAM_LIMIT, streamed_type=RAW)


async def read_file(request: HttpRequest, address: GuestAddress, grant: BodyGrant) -> HttpResponseBase:
    """Return the file that the query names, as the Accept header wants it, while `grant` holds. Raise PathInvalid,
    PathNotFound, GuestUnreachable, PayloadTooLarge, RangeNotSatisfiable, PreconditionFailed.
    """
    path = query_path(request)
    raw = request.get_preferred_type([JSON, RAW]) == RAW
    entry = await _find_file(address, path)
    response = await (_as_raw if raw else _as_json)(request, partial(_opened, address, path, grant), path, entry)
    response["Vary"] = "Accept"
    response["X-Content-Type-Options"] = "nosniff"
    return response


async def read_raw_file(request: HttpRequest, address: GuestAddress, grant: BodyGrant, path: str) -> HttpResponseBase:
    """Return the bytes of a file, or the range that the request names, while `grant` holds. Raise as `read_file`."""
    entry = await _find_file(address, path)
    response = await _as_raw(request, partial(_opened, address, path, grant), path, entry)
    response["X-Content-Type-Options"] = "nosniff"
    return response


async def _find_file(address: GuestAddress, path: str) -> Entry:
    entry = await call_guest(address, lambda session: session.stat(path), CALL_SECONDS)
    if entry.type != "file":
        what = "a directory" if entry.type == "directory" else "a device, a pipe or a socket"
        raise errors.PathInvalid(f"{displayed_path(path)!r} is {what}, not a file.")
    return entry


async def _as_json(request: HttpRequest, opened: Opened, path: str, entry: Entry) -> HttpResponseBase:
    """Return `{success, path, encoding, content, size}`; the size comes last, when it is known."""
    if not entry.is_virtual and entry.size > settings.FILE_WRITE_LIMIT:
        raise PayloadTooLarge(
            f"The file has {entry.size} bytes, and JSON carries at most {settings.FILE_WRITE_LIMIT}. "
            f"Request its raw bytes, all or a range of them, with `Accept: {RAW}`."
        )
    if request.method == "HEAD":
        return HttpResponse(content_type=JSON)
    part = Part(length=None if entry.is_virtual else entry.size)
    return StreamingHttpResponse(_encoded(await opened(part), path), content_type=JSON)


async def _as_raw(request: HttpRequest, opened: Opened, path: str, entry: Entry) -> HttpResponseBase:
    if entry.is_virtual:  # no size, no ranges, no validators
        body = _empty() if request.method == "HEAD" else await opened(Part())
        return StreamingHttpResponse(body, content_type=RAW)
    validators = Validators.of(entry)
    known = validators.not_modified(request)
    part = Part(length=entry.size) if request.method == "HEAD" else wanted_part(request.headers, entry.size, validators)
    if known is None and request.method == "HEAD":
        known = HttpResponse(content_type=RAW, headers={"Content-Length": str(entry.size)})
    if known is None:
        body = exactly_sized(await opened(part), part.length or 0)
        known = StreamingHttpResponse(body, content_type=RAW, status=206 if part.partial else 200)
        known["Content-Length"] = str(part.length)
        if part.partial:
            known["Content-Range"] = f"bytes {part.offset}-{part.offset + (part.length or 0) - 1}/{entry.size}"
    known["Accept-Ranges"] = "bytes"
    known[MODE_HEADER] = f"{entry.mode & 0o7777:04o}"
    for name, value in validators.headers().items():
        known[name] = value
    return known


async def _opened(address: GuestAddress, path: str, grant: BodyGrant, part: Part) -> AsyncIterator[bytes]:
    chunks = await open_file(
        address, lambda session: session.read(path, offset=part.offset, length=part.length), READ_SECONDS
    )
    return granted_chunks(chunks, grant)


async def _empty() -> AsyncIterator[bytes]:
    return
    yield b""


async def _encoded(chunks: Any, path: str) -> AsyncIterator[bytes]:
    yield f'{{"success": true, "path": {json.dumps(displayed_path(path))}, "encoding": "base64", "content": "'.encode()
    size, rest = 0, b""
    async with aclosing(chunks):
        async for chunk in chunks:
            size += len(chunk)
            whole = rest + chunk
            even = len(whole) - len(whole) % 3
            rest = whole[even:]
            yield base64.b64encode(whole[:even])
    yield base64.b64encode(rest) + f'", "size": {size}}}'.encode()


async def write_file(
    request: HttpRequest, address: GuestAddress, grant: BodyGrant, *, is_edited: bool
) -> HttpResponseBase:
    """Write the request's body, JSON or raw bytes, while `grant` holds. On failure the old file is unchanged.

    `is_edited`: there are edits of the machine's files, each of which is made before the file is replaced or after it.
    """
    media_type = request.content_type or JSON
    if is_raw(media_type):
        path, size = await _write_raw(request, address, grant, is_edited)
    elif media_type.lower() == JSON:
        path, size = await write_json(
            request, address, grant, lambda fields: checked_path(fields.get("path")), is_edited=is_edited
        )
    else:
        raise UnsupportedMediaType(f"Send {JSON}, or {RAW} with the path in the query.")
    return Response(FileWritten({"path": displayed_path(path), "size": size}).data)


async def _write_raw(request: HttpRequest, address: GuestAddress, grant: BodyGrant, is_edited: bool) -> tuple[str, int]:
    """Stream the body into the guest. The old file stays until the new one is complete."""
    path, mode = query_path(request), query_mode(request)
    put = partial(_put, path=path, is_edited=is_edited, mode=mode)
    return path, await _push(request, address, grant, put, None)


async def write_raw_file(
    request: HttpRequest, address: GuestAddress, grant: BodyGrant, path: str, *, most: int | None
) -> int:
    """Replace a file by the body, of at most `most` bytes, while `grant` holds. Return its size.

    On failure the old file is unchanged. Raise PayloadTooLarge and the errors of `call_errors`.
    """
    return await _push(request, address, grant, partial(_put, path=path, is_edited=True), most)


async def _push(request: HttpRequest, address: GuestAddress, grant: BodyGrant, put: Any, most: int | None) -> int:
    body = limited_body(body_chunks(request), TransferUse(address.machine_id), most)
    async with while_granted(grant):
        # There is no deadline: each step has its own, and a slow client is allowed.
        return int(await push_guest(address, put, body))


async def limited_body(body: AsyncIterator[bytes], use: TransferUse, most: int | None = None) -> AsyncIterator[bytes]:
    """Yield the pieces of a body, which keep the machine awake. Raise PayloadTooLarge."""
    size, limit = 0, min(settings.FILE_STREAM_LIMIT, most or settings.FILE_STREAM_LIMIT)
    async for piece in body:
        size += len(piece)
        if size > limit:
            raise PayloadTooLarge(f"A file of at most {limit} bytes can be written.")
        await use.arecord_chunk()
        yield piece


async def write_json(
    request: HttpRequest,
    address: GuestAddress,
    grant: BodyGrant,
    path_of: Callable[[Mapping[str, Any]], str],
    *,
    is_edited: bool,
) -> tuple[str, int]:
    """Write the base64 `content` of a JSON body. Return its path, which `path_of` finds in the other fields, and its
    size.

    The whole body is read before the guest is contacted: its path may come last, and it may be malformed. Raise
    InvalidJson, ValidationError, PayloadTooLarge, Unauthorized (`grant` was revoked) and the errors of `call_errors`;
    nothing has changed then.
    """
    use = TransferUse(address.machine_id)
    # This is a folder of ours: on a full disk Python finds no temporary folder, and its error does not say why.
    with tempfile.TemporaryFile(dir=settings.STATE) as spool:
        path = path_of(await in_body_thread(_receive, request, spool, use))
        async with while_granted(grant):
            put = partial(_put, path=path, is_edited=is_edited)
            size = await push_guest(address, put, _spooled(spool, use), WRITE_SECONDS)
    return path, size


def _receive(request: HttpRequest, spool: IO[bytes], use: TransferUse) -> Mapping[str, Any]:
    """Write the body's content into the spool; returns its other fields."""

    def read(size: int) -> bytes:
        use.record_chunk()
        return request.read(size)

    return read_upload(read, spool, settings.FILE_WRITE_LIMIT).fields


async def _put(
    session: GuestSession, chunks: AsyncIterator[bytes], *, path: str, is_edited: bool, mode: int | None = None
) -> int:
    if mode is not None:
        with suppress(GuestPathNotFound):
            mode &= (await session.stat(path)).mode
    return await session.write(path, chunks, mode=mode, expected=ANY_CONTENT if is_edited else None)


async def _spooled(spool: IO[bytes], use: TransferUse) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(spool.read, CHUNK):
        await use.arecord_chunk()
        yield chunk
