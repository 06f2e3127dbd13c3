"""`{url}/files...` (wire contract, section 4b)."""

from __future__ import annotations

from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.serializers import ValidationError

from common.async_threads import in_render_thread
from common.body_rules import takes_body
from common.openapi import refused
from common.parsers import UnstoredObjectParser
from common.responses import respond
from common.times import iso, moment
from common.watched_bodies import granted_chunks
from vmbackend.guest.session import Entry, GuestSession
from workspaces.data_plane.fields import path_fields
from workspaces.data_plane.files import services as shared
from workspaces.data_plane.files.lines import LAST
from workspaces.data_plane.files.shown import shown_content
from workspaces.data_plane.json_bodies import read_body
from workspaces.files.content import CALL_SECONDS, FILES_IN_JSON, READ_SECONDS, WRITE_SECONDS
from workspaces.files.paths import displayed_path
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet
from workspaces.runtime.files import serializers as s
from workspaces.runtime.files import services
from workspaces.runtime.files.entries import as_tree, entry_bodies
from workspaces.runtime.files.names import extension_of, is_code
from workspaces.runtime.files.streamed import NDJSON, tree_reader, with_failure
from workspaces.runtime.files.trees import Batch, tree_list
from workspaces.runtime.files.wanted import shown_of, wanted_tree
from workspaces.runtime.query_fields import read_query
from workspaces.runtime.search_errors import parameters_named

TREE_SECONDS = 300.0
PIECE_SECONDS = 600.0  # of a stream: filters may leave out all that is found for long
PATHS = "`validation_error`: a parameter, which is named; `path_invalid`: the path leads to another kind of file"
NOT_THERE = "`path_not_found`: also a loop of symbolic links"
RUNNING = "`vm_not_running`"


class RuntimeFilesViewSet(RuntimeViewSet):
    """Files and directories of a workspace."""

    parser_classes = [UnstoredObjectParser]

    @extend_schema(
        parameters=[s.RuntimeListQuery],
        responses={
            200: s.RuntimeListResponse,
            **refused({400: PATHS, 404: NOT_THERE, 409: f"{RUNNING}; `search_failed`: with `use_gitignore`"}),
        },
    )
    async def list(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """The entries of a directory, or of all below it, each before those inside it, by name: at most 10,000.

        Fewer if their paths have more than 8 MiB together; `truncated` says whether there are more. Symbolic links
        and other file systems are shown and not entered. Directories pass `include_ext` and `code_files_only`; with
        `nested` those stay that lead to a chosen entry. What could not be read in time has no hash and no content.
        """
        query = read_query(s.RuntimeListQuery, self.http_request)
        guest = await self.guest()
        with parameters_named():
            path, batch, more = await guest.run(lambda session: _listed(session, query), TREE_SECONDS)
        return await in_render_thread(lambda: respond(s.RuntimeListResponse, **_listing(path, batch, more, query)))

    @extend_schema(
        parameters=[s.RuntimeListQuery],
        responses={
            (200, NDJSON): OpenApiTypes.STR,
            **refused({400: PATHS, 404: NOT_THERE, 409: f"{RUNNING}; `search_failed`: with `use_gitignore`"}),
        },
    )
    async def stream(self, request: RuntimeRequest, named_id: str = "") -> HttpResponseBase:
        """The same entries, of any number, as lines of JSON while they are found.

        First comes `{"event": "start", "path"}`, then each entry as in a listing without `nested`, last `{"event":
        "done", "count", "truncated"}`. After a failure in between comes `{"event": "error", ...}` with the fields of
        an error's body, and the response breaks off, as it does when the token ends. Contents and hashes come with
        their entries.
        """
        query = read_query(s.RuntimeListQuery, self.http_request)
        guest = await self.guest()
        with parameters_named():
            opened = await guest.open_file(tree_reader(query), PIECE_SECONDS)
        return StreamingHttpResponse(granted_chunks(with_failure(opened), self.grant), content_type=NDJSON)

    @extend_schema(
        parameters=[s.RuntimeReadQuery],
        responses={
            200: s.RuntimeReadResponse,
            **refused({400: PATHS, 404: NOT_THERE, 409: RUNNING, 413: "`payload_too_large`: a text above 16 MiB"}),
        },
    )
    async def read(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """The text of a file, or some of its lines; base64 of their bytes if these are not UTF-8.

        Lines end with `\\n`. Lines beyond the end of the file are empty.
        """
        query = read_query(s.RuntimeReadQuery, self.http_request)
        first, last = query["start_line"], query.get("end_line", LAST)
        guest = await self.guest()
        part = await guest.call(
            lambda session: shared.file_read(session, path=query["path"], first=first, last=last), READ_SECONDS
        )
        return await in_render_thread(
            lambda: respond(s.RuntimeReadResponse, **_shown(part, with_numbers=query["with_line_numbers"]))
        )

    @extend_schema(
        request=s.RuntimeWriteRequest,
        responses={
            200: s.RuntimeWrittenResponse,
            **refused(
                {
                    400: PATHS,
                    404: "`path_not_found`: there is no directory for it, and `create_dirs` is not set",
                    409: f"`guest_disk_full`; {RUNNING}",
                    413: "`payload_too_large`: above 64 MiB",
                }
            ),
        },
    )
    @takes_body(FILES_IN_JSON)
    async def write(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Write a file, replacing one that exists, or write to its end with `append`.

        A file is replaced at once: readers see the old one or the whole new one, which keeps its owner. An append
        opens the file once; one that fails may leave a part of its bytes. Through a symbolic link its target is
        written. Answered when it is on the disk.
        """
        data = await read_body(s.RuntimeWriteRequest, request)
        path, fields = data["path"], {name: data[name] for name in ("content", "create_dirs", "append")}
        guest = await self.guest()
        size = await guest.run(
            lambda session: services.file_write(session, path=path, mode=data.get("mode"), **fields), WRITE_SECONDS
        )
        return respond(s.RuntimeWrittenResponse, size=size, **path_fields(path))

    @extend_schema(
        request=s.RuntimeFolderRequest,
        responses={
            200: s.RuntimePathResponse,
            **refused({400: PATHS, 404: NOT_THERE, 409: f"`guest_disk_full`; {RUNNING}"}),
        },
    )
    async def mkdir(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Create a directory with its parents. One that exists stays as it is."""
        data = await read_body(s.RuntimeFolderRequest, request)
        guest = await self.guest()
        await guest.run(
            lambda session: services.folder_ensure(session, path=data["path"], mode=data.get("mode")), CALL_SECONDS
        )
        return respond(s.RuntimePathResponse, **path_fields(data["path"]))

    @extend_schema(
        parameters=[s.RuntimePathQuery],
        responses={200: s.RuntimeStatResponse, **refused({400: PATHS, 404: NOT_THERE, 409: RUNNING})},
    )
    async def stat(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """The entry at a path; symbolic links are not followed."""
        path = read_query(s.RuntimePathQuery, self.http_request)["path"]
        guest = await self.guest()
        entry = await guest.call(lambda session: session.stat_link(path), CALL_SECONDS)
        return respond(s.RuntimeStatResponse, **_stat(path, entry))

    @extend_schema(
        request=s.RuntimeRemoveRequest,
        responses={
            200: s.RuntimePathResponse,
            **refused({400: f"{PATHS}, `/`, a mount point or a directory that has one", 404: NOT_THERE, 409: RUNNING}),
        },
    )
    async def remove(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Remove a file, a symbolic link, or a directory with all that it contains.

        The path may also be the query's `path`. A removal that fails, or takes more than two minutes, may leave a part
        of a directory.
        """
        given = await read_body(s.RuntimeRemoveRequest, request) or read_query(s.RuntimeRemoveQuery, self.http_request)
        if "path" not in given:
            raise ValidationError({"path": ["This field is required, in the body or in the query."]})
        path = given["path"]
        guest = await self.guest()
        await guest.run(lambda session: shared.path_remove(session, path=path), TREE_SECONDS)
        return respond(s.RuntimePathResponse, **path_fields(path))


async def _listed(session: GuestSession, query: dict[str, Any]) -> tuple[str, Batch, bool]:
    wanted = await wanted_tree(session, query)
    batch, more = await tree_list(session, wanted)
    return wanted.path, batch, more


def _listing(path: str, batch: Batch, more: bool, query: dict[str, Any]) -> dict[str, Any]:
    bodies = entry_bodies(batch, shown_of(path, query))
    is_tree = query["nested"] and not query["flatten"]
    return {
        **path_fields(path),
        "count": len(bodies),
        "entries": as_tree(batch, bodies) if is_tree else bodies,
        "truncated": more,
    }


def _shown(part: shared.FilePart, *, with_numbers: bool) -> dict[str, Any]:
    count = part.content.count(b"\n") + (not part.content.endswith(b"\n") and bool(part.content))
    return {
        **path_fields(part.path),
        **shown_content(part, with_numbers=with_numbers),
        "size": part.size,
        "lines": part.lines,
        "extension": displayed_path(extension_of(part.path)),
        "start_line": part.first,
        "end_line": part.first + count - 1,
    }


def _stat(path: str, entry: Entry) -> dict[str, Any]:
    return {
        **path_fields(path),
        "name": displayed_path(entry.name),
        "type": entry.type,
        "size": entry.size,
        "modified": iso(moment(entry.modified)),
        "permissions": f"{entry.mode & 0o7777:04o}",
        "is_code": entry.type == "file" and is_code(path),
        "extension": displayed_path(extension_of(path)) or None,
        "symlink_target": None if entry.target is None else displayed_path(entry.target),
    }
