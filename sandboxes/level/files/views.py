"""`/s/:id/files/...` (wire contract, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from common.async_threads import in_render_thread
from common.body_rules import RAW, takes_body
from common.errors import UnsupportedMediaType
from common.openapi import refused
from common.parsers import UnstoredObjectParser
from common.responses import respond
from common.times import iso, moment
from common.watched_bodies import granted_chunks
from sandboxes.level.base import SandboxLevelViewSet, SandboxRequest
from sandboxes.level.files import serializers as s
from vmbackend.errors import GuestPathNotFound
from vmbackend.guest.session import GuestSession, TreeEntry
from workspaces.conditions import exactly_sized
from workspaces.data_plane.fields import path_fields
from workspaces.data_plane.files import services
from workspaces.data_plane.files.edits import Edit
from workspaces.data_plane.files.lines import LAST
from workspaces.data_plane.files.shown import shown_content
from workspaces.files.content import CALL_SECONDS, FILES_IN_JSON, JSON, READ_SECONDS, WRITE_SECONDS, write_json
from workspaces.files.paths import displayed_path, encoded_path

TREE_SECONDS = 300.0  # the guest itself gives up earlier
PATHS = "`validation_error`: a path has NUL characters or 4,096 bytes; `path_invalid`: it leads to another kind of file"
NOT_THERE = "`path_not_found`: also a loop of symbolic links"
RUNNING = "`vm_not_running`"


class SandboxFilesViewSet(SandboxLevelViewSet):
    """Files and directories of a sandbox."""

    parser_classes = [UnstoredObjectParser]

    @extend_schema(
        request=s.SandboxListRequest,
        responses={200: s.SandboxListResponse, **refused({400: PATHS, 404: NOT_THERE, 409: RUNNING})},
    )
    async def list(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """The entries below a directory, each before those inside it, by name: at most 10,000 of them.

        Fewer if their paths have more than 8 MiB together; `truncated` says whether there are more. Symbolic links
        and other file systems are shown and not entered. Names that are not UTF-8 have replacement characters, and
        `encodedPath`. What could not be read within two minutes has no hash.
        """
        data = await self.body(s.SandboxListRequest)
        guest = await self.guest()
        listing = await guest.run(
            lambda session: services.files_list(
                session,
                path=data["dirPath"],
                depth=data["maxDepth"] if data["recursive"] else 1,
                ignore=data["ignorePatterns"],
                with_hashes=data["includeHash"],
                gitignore=data["useGitignore"],
            ),
            TREE_SECONDS,
        )
        return await in_render_thread(lambda: respond(s.SandboxListResponse, **listed(listing)))

    @extend_schema(
        request=s.SandboxReadRequest,
        responses={
            200: s.SandboxReadResponse,
            **refused({400: PATHS, 404: NOT_THERE, 409: RUNNING, 413: "`payload_too_large`: a text above 16 MiB"}),
        },
    )
    async def read(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """The text of a file, or some of its lines; base64 of their bytes if these are not UTF-8.

        Lines end with `\\n`. A range beyond the end of the file is empty.
        """
        data = await self.body(s.SandboxReadRequest)
        guest = await self.guest()
        lines = data.get("range") or {}
        part = await guest.call(
            lambda session: services.file_read(
                session, path=data["filePath"], first=lines.get("start", 1), last=lines.get("end", LAST)
            ),
            READ_SECONDS,
        )
        return await in_render_thread(
            lambda: respond(s.SandboxReadResponse, **_shown(part, with_numbers=data["withLineNumbers"]))
        )

    @extend_schema(
        request=s.SandboxCreateRequest,
        responses={200: s.SandboxWrittenResponse, **refused({400: PATHS, 409: f"`path_exists`; {RUNNING}"})},
    )
    @takes_body(FILES_IN_JSON)
    async def make(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Create a file with this text, or a directory; missing parents are created.

        Answered when it is on the disk. If two come at once, one gets 409, as if anything exists at the path.
        """
        data = await self.body(s.SandboxCreateRequest)
        path, size = data["fullPath"], 0
        guest = await self.guest()
        if data["isFolder"]:
            await guest.call(lambda session: services.folder_create(session, path=path), CALL_SECONDS)
        else:
            size = await guest.call(
                lambda session: services.file_create(session, path=path, content=data["content"]), WRITE_SECONDS
            )
        return respond(s.SandboxWrittenResponse, size=size, **path_fields(path))

    @extend_schema(
        request=s.SandboxEditRequest,
        responses={
            200: s.SandboxWrittenResponse,
            **refused(
                {
                    400: PATHS,
                    404: NOT_THERE,
                    409: f"`edit_not_applicable`: details name the edit, and whether its text was `not_found` or "
                    f"`found_more_than_once`; `file_changed`: other programs kept changing the file; {RUNNING}",
                    413: "`payload_too_large`: edits of a file above 16 MiB",
                }
            ),
        },
    )
    @takes_body(FILES_IN_JSON)
    async def edit(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Replace a file's content, or texts in it: all edits are made, one after the other, or none.

        Each `oldText` must be in the file exactly once, as the edits before it left the file. Readers see the old file
        or the whole new one, which is on the disk when this is answered; mode and owner stay.
        """
        data = await self.body(s.SandboxEditRequest)
        path = data["filePath"]
        guest = await self.guest()
        size = await guest.call(lambda session: _edited(session, path, data), WRITE_SECONDS)
        return respond(s.SandboxWrittenResponse, size=size, **path_fields(path))

    @extend_schema(
        request=s.SandboxPathRequest,
        responses={200: s.SandboxPathResponse, **refused({400: PATHS, 404: NOT_THERE, 409: RUNNING})},
    )
    async def remove(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Remove a file, a symbolic link, or a directory with all that it contains.

        A removal that fails, or takes more than two minutes, may leave a part of a directory.
        """
        path = (await self.body(s.SandboxPathRequest))["filePath"]
        guest = await self.guest()
        await guest.run(lambda session: services.path_remove(session, path=path), TREE_SECONDS)
        return respond(s.SandboxPathResponse, **path_fields(path))

    @extend_schema(
        request=s.SandboxRenameRequest,
        responses={
            200: s.SandboxPathResponse,
            **refused(
                {400: PATHS, 404: f"{NOT_THERE}; no parent of the destination", 409: f"`path_exists`; {RUNNING}"}
            ),
        },
    )
    async def rename(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Rename or move a file, a symbolic link or a directory. What exists at the destination is not replaced.

        Atomic within a file system, but for directories of the image, which are copied, as between file systems.
        """
        data = await self.body(s.SandboxRenameRequest)
        source, destination = data["sourcePath"], data["destinationPath"]
        guest = await self.guest()
        await guest.run(
            lambda session: services.path_rename(session, source=source, destination=destination), TREE_SECONDS
        )
        return respond(s.SandboxPathResponse, **path_fields(destination))

    @extend_schema(
        request=s.SandboxPathRequest,
        responses={200: s.SandboxExistsResponse, **refused({400: PATHS, 409: RUNNING})},
    )
    async def exists(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Whether there is anything at a path; symbolic links are followed."""
        path = (await self.body(s.SandboxPathRequest))["filePath"]
        guest = await self.guest()
        kind = await guest.call(lambda session: _kind(session, path), CALL_SECONDS)
        return respond(s.SandboxExistsResponse, exists=kind is not None, type=kind)


class SandboxTransfersViewSet(SandboxLevelViewSet):
    """The bytes of whole files, streamed both ways."""

    parser_classes = [UnstoredObjectParser]

    @extend_schema(
        request=s.SandboxUploadRequest,
        responses={
            200: s.SandboxWrittenResponse,
            **refused({400: PATHS, 409: f"`guest_disk_full`; {RUNNING}", 413: "`payload_too_large`: above 64 MiB"}),
        },
    )
    @takes_body(FILES_IN_JSON)
    async def upload(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Write a file of any bytes, replacing one that exists; missing parents are created.

        Readers see the old file or the whole new one, which is on the disk when this is answered.
        """
        if (self.http_request.content_type or JSON).lower() != JSON:
            raise UnsupportedMediaType
        guest = await self.guest()
        path, size = await write_json(self.http_request, guest.address, self.grant, _upload_path, is_edited=True)
        return respond(s.SandboxWrittenResponse, size=size, **path_fields(path))

    @extend_schema(
        request=s.SandboxPathRequest,
        responses={(200, RAW): OpenApiTypes.BINARY, **refused({400: PATHS, 404: NOT_THERE, 409: RUNNING})},
    )
    async def download(self, request: SandboxRequest, sandbox_id: str) -> HttpResponseBase:
        """The raw bytes of a file of any size, streamed.

        A file that grows ends at its announced size; one that shrinks breaks the response off, and so does the end of
        the token. Virtual files of the kernel have no announced size, and at most 16 MiB.
        """
        path = (await self.body(s.SandboxPathRequest))["filePath"]
        guest = await self.guest()
        entry = await guest.call(lambda session: services.regular_file(session, path), CALL_SECONDS)
        length = None if entry.is_virtual else entry.size
        opened = await guest.open_file(lambda session: session.read(path, length=length), READ_SECONDS)
        chunks = granted_chunks(opened, self.grant)
        response = StreamingHttpResponse(chunks if length is None else exactly_sized(chunks, length), content_type=RAW)
        if length is not None:
            response["Content-Length"] = str(length)
        response["X-Content-Type-Options"] = "nosniff"
        return response


def listed(listing: services.Listing) -> dict[str, Any]:
    """Return the body of a listing. Ten thousand entries: made without a serializer's call for each field."""
    root = listing.path.rstrip("/")
    return {
        "path": displayed_path(listing.path),
        "count": len(listing.entries),
        "files": [_entry(entry, f"{root}/{entry.path}", listing.hashes) for entry in listing.entries],
        "truncated": listing.truncated,
    }


def _entry(entry: TreeEntry, path: str, hashes: Mapping[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": displayed_path(path.rsplit("/", 1)[-1]),
        "path": displayed_path(path),
        "type": entry.type,
        "size": entry.size,
        "modified": iso(moment(entry.modified)),
    }
    optional = {
        "hash": hashes.get(entry.path),
        "target": None if entry.target is None else displayed_path(entry.target),
        "encodedPath": encoded_path(path),
    }
    return body | {name: value for name, value in optional.items() if value is not None}


def _shown(part: services.FilePart, *, with_numbers: bool) -> dict[str, Any]:
    content = shown_content(part, with_numbers=with_numbers)
    return {"size": part.size, "lines": part.lines, **path_fields(part.path), **content}


async def _edited(session: GuestSession, path: str, data: Mapping[str, Any]) -> int:
    if "content" in data:
        return await services.file_replace(session, path=path, content=data["content"])
    edits = [Edit(edit["oldText"], edit["newText"]) for edit in data["edits"]]
    return await services.file_edit(session, path=path, edits=edits)


async def _kind(session: GuestSession, path: str) -> str | None:
    try:
        entry = await session.stat(path)
    except GuestPathNotFound:
        return None
    return "directory" if entry.type == "directory" else "file"


def _upload_path(fields: Mapping[str, Any]) -> str:
    checked = s.SandboxPathRequest(data=dict(fields))
    checked.is_valid(raise_exception=True)
    path: str = checked.validated_data["filePath"]
    return path
