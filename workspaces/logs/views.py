"""`/workspace/:id/logs`: entries, files, deletion. The streams are in `workspaces.streams`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest, actor_of
from accounts.permissions import RESOURCE_SCOPES, require
from common.connections import release_connection
from common.errors import MethodNotAllowed, NotFound, ValidationError
from common.openapi import MessageResponse, refused
from common.requests import validated_query
from common.responses import ok
from common.times import iso, moment
from vmbackend.backend import guest_pool
from vmbackend.guest.session import GuestAddress
from workspaces.guests import guest_errors
from workspaces.last_used import TransferUse
from workspaces.logs import console, guest_logs, serializers
from workspaces.logs.channels import cleared_on_commit
from workspaces.logs.guest_address import guest_log_address
from workspaces.logs.lines import log_entries
from workspaces.logs.serializers import LogQuery
from workspaces.logs.sources import LogSource, find_source, sources_of
from workspaces.models import Workspace
from workspaces.requested import requested_workspace
from workspaces.states import Status

CALL_SECONDS = 30.0
CLEAR_SECONDS = 60.0
# Without a machine there is no disk with logs on it.
NO_DISK = frozenset({Status.QUEUED, Status.CREATING, Status.FAILED, Status.DESTROYED})
PLAIN = "text/plain; charset=utf-8"


class LogsViewSet(ViewSet):
    """Logs of one workspace."""

    @extend_schema(
        parameters=[LogQuery],
        responses={200: serializers.LogsResponse, **refused({400: "`validation_error`", 409: "`vm_not_running`"})},
    )
    def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """The last lines of `boot` (the console), `cmd` (the main program) or a workload, by its name.

        At most 1 MiB of a log is looked at. The console's log is there in every state, the others while the workspace
        runs. A line of more than 8 KiB comes as several entries; bytes that are no UTF-8 are replaced.
        """
        query = validated_query(LogQuery, request)
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        source = _named(workspace, query["source"])
        data = _tail(workspace, source, query["tail_lines"])
        found = log_entries(data, source.name, console=source.is_console, last=query["tail_lines"])
        return ok(source=source.name, logs=found)

    @extend_schema(responses=serializers.LogFilesResponse)
    def files(self, request: ApiRequest, workspace_id: str) -> Response:
        """The log files, older ones (`.1` to `.3`) included."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        found = console.console_files(workspace)
        complete = workspace.status == Status.RUNNING
        if complete:
            sources = list(sources_of(workspace).values())
            address = guest_log_address(workspace)
            release_connection()
            with guest_errors():
                listed = guest_pool().call(address, lambda session: guest_logs.files(session, sources), CALL_SECONDS)
            found += [{"name": file.name, "size": file.size, "modified": file.modified} for file in listed]
        files = [{**file, "modified": iso(moment(file["modified"]))} for file in found]
        return ok(files=files, complete=complete or workspace.status in NO_DISK)

    @extend_schema(responses={200: MessageResponse, **refused({409: "`vm_not_running`: nothing was cleared"})})
    def clear(self, request: ApiRequest, workspace_id: str) -> Response:
        """Empty all logs, on the host and in the workspace, which must run for that. Open streams are told."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        sources = sources_of(workspace)
        address = None if workspace.status in NO_DISK else guest_log_address(workspace)
        release_connection()
        with cleared_on_commit(workspace.pk, sources), guest_errors():
            if address is not None:
                inner = list(sources.values())
                guest_pool().call(address, lambda session: guest_logs.clear(session, inner), CLEAR_SECONDS)
            console.clear_console(workspace)
        return ok(message="The logs were cleared.")


def _named(workspace: Workspace, name: str) -> LogSource:
    try:
        return find_source(workspace, name)
    except NotFound as exc:
        raise ValidationError(details={"source": [exc.message]}) from exc


def _tail(workspace: Workspace, source: LogSource, lines: int) -> bytes:
    if source.path is None:
        return console.console_tail(workspace, lines)
    path, address = source.path, guest_log_address(workspace)
    release_connection()
    with guest_errors():
        return guest_pool().call(address, lambda session: guest_logs.tail(session, path, lines), CALL_SECONDS)


async def log_file(request: HttpRequest, workspace_id: str, name: str) -> HttpResponseBase:
    """One file as it is, `text/plain`. An asynchronous view: the content flows through it."""
    if request.method != "GET":
        raise MethodNotAllowed(headers={"Allow": "GET"})
    found = await _locate(request, workspace_id, name)
    if isinstance(found, bytes):
        return _plain(HttpResponse(found, content_type=PLAIN))
    address, path = found
    chunks = guest_pool().astream(address, lambda session: session.read(path), CALL_SECONDS)
    with guest_errors():
        first = await anext(chunks, b"")  # errors of opening the file come while they can still be answered
    return _plain(StreamingHttpResponse(_joined(first, chunks, TransferUse(address.machine_id)), content_type=PLAIN))


@sync_to_async
def _locate(request: HttpRequest, workspace_id: str, name: str) -> bytes | tuple[GuestAddress, str]:
    """A file of the console whole, as it is bounded; of another its place in the guest."""
    actor = require(actor_of(request), RESOURCE_SCOPES)
    workspace = requested_workspace(actor, workspace_id, whole=True)
    if name in console.NAMES:
        return console.console_file(workspace, name)
    path = guest_logs.path_of(name, sources_of(workspace).values())
    if path is None:
        raise NotFound("There is no such log file; /logs/list names them.")
    address = guest_log_address(workspace)
    release_connection()  # the content may flow for minutes
    return address, path


async def _joined(first: bytes, rest: AsyncGenerator[bytes, None], use: TransferUse) -> AsyncIterator[bytes]:
    async with aclosing(rest):
        yield first
        async for chunk in rest:
            await use.arecord_chunk()
            yield chunk


def _plain(response: Any) -> Any:
    response["X-Content-Type-Options"] = "nosniff"
    return response
