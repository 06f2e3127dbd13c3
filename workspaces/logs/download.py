"""One log file as a response: in JSON its last MiB, as text all of it or a range, streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.response import Response

from common.async_threads import in_render_thread
from common.watched_bodies import BodyGrant, granted_chunks
from vmbackend.guest.session import Entry, GuestAddress
from workspaces.conditions import Part, Validators, exactly_sized, wanted_part
from workspaces.errors import PathInvalid
from workspaces.guests import call_guest, open_file
from workspaces.logs import guest_logs
from workspaces.logs.console import Console
from workspaces.logs.lines import MAX_TAIL_BYTES, whole_lines
from workspaces.logs.serializers import LogFileResponse

CALL_SECONDS = 30.0
JSON, PLAIN = "application/json", "text/plain"


async def log_file(
    request: HttpRequest, place: Console | GuestAddress, grant: BodyGrant, name: str, path: str
) -> HttpResponseBase:
    """Return the file in the form that the Accept header names, JSON if it names none; as text while `grant` holds.

    Raise NotFound, PathNotFound, PathInvalid, RangeNotSatisfiable, GuestUnreachable.
    """
    file: _HostFile | _GuestFile
    if isinstance(place, Console):
        file = _HostFile(await place.read(name))
    else:
        file = await _GuestFile.at(place, path)
    wants_text = request.get_preferred_type([JSON, PLAIN]) == PLAIN
    response = await (_as_text(request, file, grant) if wants_text else _as_json(file, name))
    response["Vary"] = "Accept"
    response["X-Content-Type-Options"] = "nosniff"
    return response


class _HostFile:
    """File of the console, which is bounded."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self.validators: Validators | None = None
        self._content = content

    async def read(self, part: Part) -> bytes:
        return self._content[part.offset :][: part.length]

    async def stream(self, part: Part) -> AsyncIterator[bytes]:
        return _one(await self.read(part))


class _GuestFile:
    """File inside the guest, with its size when the request came."""

    def __init__(self, address: GuestAddress, path: str, entry: Entry) -> None:
        self.size = entry.size
        self.validators: Validators | None = Validators.of(entry)
        self._address = address
        self._path = path

    @classmethod
    async def at(cls, address: GuestAddress, path: str) -> _GuestFile:
        entry = await call_guest(address, lambda session: session.stat(path), CALL_SECONDS)
        if entry.type != "file":
            raise PathInvalid("This log is not a regular file.")
        return cls(address, path, entry)

    async def read(self, part: Part) -> bytes:
        return await call_guest(
            self._address,
            lambda session: guest_logs.read_log(session, self._path, part.offset, part.length or 0),
            CALL_SECONDS,
        )

    async def stream(self, part: Part) -> AsyncIterator[bytes]:
        chunks = await open_file(
            self._address,
            lambda session: session.read(self._path, offset=part.offset, length=part.length),
            CALL_SECONDS,
        )
        return exactly_sized(chunks, part.length or 0)


async def _one(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _as_json(file: _HostFile | _GuestFile, name: str) -> HttpResponseBase:
    start = max(0, file.size - MAX_TAIL_BYTES)
    data = await file.read(Part(start, file.size - start))
    return Response(await in_render_thread(_json_body, data, name, file.size, start > 0))


def _json_body(data: bytes, name: str, size: int, truncated: bool) -> dict[str, object]:
    content = (whole_lines(data) if truncated else data).decode("utf-8", errors="replace")
    body: dict[str, object] = LogFileResponse(
        {"name": name, "size": size, "content": content, "truncated": truncated}
    ).data
    return body


async def _as_text(request: HttpRequest, file: _HostFile | _GuestFile, grant: BodyGrant) -> HttpResponseBase:
    part = wanted_part(request.headers, file.size, file.validators)
    response = StreamingHttpResponse(
        granted_chunks(await file.stream(part), grant),
        content_type=f"{PLAIN}; charset=utf-8",
        status=206 if part.partial else 200,
    )
    response["Content-Length"] = str(part.length)
    response["Accept-Ranges"] = "bytes"
    if part.partial:
        response["Content-Range"] = f"bytes {part.offset}-{part.offset + (part.length or 0) - 1}/{file.size}"
    for header, value in (file.validators.headers() if file.validators else {}).items():
        response[header] = value
    return response
