"""`/workspace/:id/logs`: entries, files, deletion. The event streams are in `workspaces.streams`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.response import Response

from accounts.actors import Actor
from accounts.authentication import ApiRequest
from common.async_threads import entered_in_thread, in_render_thread, in_request_thread, run_to_end
from common.async_views import AsyncViewSet
from common.errors import NotFound, ValidationError
from common.openapi import MessageResponse, refused
from common.requests import validated_query
from common.responses import ok
from common.watched_bodies import BodyGrant
from vmbackend.guest.session import GuestAddress
from workspaces.errors import WorkloadNotFound
from workspaces.grants import body_grant
from workspaces.guests import call_guest
from workspaces.logs import guest_logs
from workspaces.logs.channels import cleared_on_commit
from workspaces.logs.console import NAMES, Console
from workspaces.logs.download import log_file
from workspaces.logs.guest_address import guest_log_address
from workspaces.logs.lines import log_entries
from workspaces.logs.serializers import LogFileResponse, LogFilesResponse, LogQuery, LogsResponse, WorkloadLogQuery
from workspaces.logs.sources import LogSource, find_source, sources_of, workload_sources
from workspaces.requested import requested_workspace
from workspaces.states import Status

CALL_SECONDS = 30.0
CLEAR_SECONDS = 60.0
# Without a machine there is no disk with logs on it.
NO_DISK = frozenset({Status.QUEUED, Status.CREATING, Status.FAILED, Status.DESTROYED})


class LogsViewSet(AsyncViewSet):
    """Logs of one workspace."""

    @extend_schema(
        parameters=[LogQuery],
        responses={200: LogsResponse, **refused({400: "`validation_error`", 409: "`vm_not_running`"})},
    )
    async def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the last lines of `boot` (the console), `cmd` (the main program) or a workload, by its name.

        At most 1 MiB of a log is read. The console's log can be read in every state, the others while the workspace
        runs. A line of more than 8 KiB becomes several entries; bytes that are not UTF-8 are replaced.
        """
        query = validated_query(LogQuery, request)
        source, place = await in_request_thread(_find_log, request.user, workspace_id, query["source"])
        data = await _tail(source, place, query["tail_lines"])
        return Response(await in_render_thread(_logs_body, data, source, query["tail_lines"]))

    @extend_schema(
        parameters=[WorkloadLogQuery],
        responses={
            200: LogsResponse,
            **refused({400: "`validation_error`", 404: "`not_found`; `workload_not_found`", 409: "`vm_not_running`"}),
        },
    )
    async def of_workload(self, request: ApiRequest, workspace_id: str, workload_id: str) -> Response:
        """Return the last lines of a saved workload's log, as `logs?source=` does."""
        query = validated_query(WorkloadLogQuery, request)
        source, address = await in_request_thread(_find_workload_log, request.user, workspace_id, workload_id)
        data = await _tail(source, address, query["tail_lines"])
        return Response(await in_render_thread(_logs_body, data, source, query["tail_lines"]))

    @extend_schema(responses=LogFilesResponse)
    async def files(self, request: ApiRequest, workspace_id: str) -> Response:
        """List the log files, older ones (`.1` to `.3`) included."""
        logs = await in_request_thread(_all_logs, request.user, workspace_id, frozenset(Status) - {Status.RUNNING})
        files = await logs.console.files()
        if logs.guest is not None:
            listed = await call_guest(
                logs.guest, lambda session: guest_logs.log_files(session, logs.sources), CALL_SECONDS
            )
            files += [{"name": file.name, "size": file.size, "modified": file.modified} for file in listed]
        complete = logs.guest is not None or logs.status in NO_DISK
        return Response(LogFilesResponse({"files": files, "complete": complete}).data)

    @extend_schema(responses={200: MessageResponse, **refused({409: "`vm_not_running`: nothing was cleared"})})
    async def clear(self, request: ApiRequest, workspace_id: str) -> Response:
        """Empty all logs, on the host and in the workspace, which must be running. Open streams get an event."""
        logs = await in_request_thread(_all_logs, request.user, workspace_id, NO_DISK)
        await run_to_end(_clear(logs))
        return ok(message="The logs were cleared.")


class LogFileViewSet(AsyncViewSet):
    """One log file."""

    http_method_names = ["get"]

    @extend_schema(
        parameters=[
            OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="Range of the text: `bytes=0-999`."),
        ],
        responses={
            (200, "application/json"): LogFileResponse,
            (200, "text/plain"): OpenApiTypes.STR,
            (206, "text/plain"): OpenApiResponse(OpenApiTypes.STR, description="A range of the text."),
            **refused(
                {
                    400: "`path_invalid`: not a regular file",
                    404: "`not_found`; `path_not_found`",
                    409: "`vm_not_running`",
                    416: "`range_not_satisfiable`",
                }
            ),
        },
    )
    async def retrieve(self, request: ApiRequest, workspace_id: str, name: str) -> HttpResponseBase:
        """Return one log file: its last MiB in JSON, or with `Accept: text/plain` all of it as it is, streamed, with
        ranges.

        Each line of the console begins with the time at which the host read it. The logs of the main program and of
        workloads without a `log_path` are in the format of the container runtime interface (CRI): time, stream, `F`
        (`P`: the next record of the stream continues the line), and the text.
        """
        place, path, grant = await in_request_thread(_find_file, request.user, workspace_id, name)
        return await log_file(self.http_request, place, grant, name, path)


@dataclass(frozen=True, slots=True)
class AllLogs:
    """Places of the logs of a workspace. `guest` is None if the logs inside the guest are left out."""

    status: str
    console: Console
    guest: GuestAddress | None
    sources: Sequence[LogSource]


def _all_logs(actor: Actor, workspace_id: str, without_guest: frozenset[Status]) -> AllLogs:
    """Return the logs of a workspace. Raise VmNotRunning if the workspace does not run, unless its status is one of
    `without_guest`.
    """
    workspace = requested_workspace(actor, workspace_id, whole=True)
    guest = None if workspace.status in without_guest else guest_log_address(workspace)
    return AllLogs(workspace.status, Console.of(workspace), guest, list(sources_of(workspace).values()))


def _find_log(actor: Actor, workspace_id: str, name: str) -> tuple[LogSource, Console | GuestAddress]:
    workspace = requested_workspace(actor, workspace_id, whole=True)
    try:
        source = find_source(workspace, name)
    except NotFound as exc:
        raise ValidationError(details={"source": [exc.message]}) from exc
    return source, Console.of(workspace) if source.is_console else guest_log_address(workspace)


def _find_workload_log(actor: Actor, workspace_id: str, name: str) -> tuple[LogSource, GuestAddress]:
    workspace = requested_workspace(actor, workspace_id, whole=True)
    source = workload_sources(workspace).get(name)
    if source is None:
        raise WorkloadNotFound
    return source, guest_log_address(workspace)


def _find_file(actor: Actor, workspace_id: str, name: str) -> tuple[Console | GuestAddress, str, BodyGrant]:
    """Return the console or the guest that has a file, its path there, and the grant with whose end its body ends."""
    workspace = requested_workspace(actor, workspace_id, whole=True)
    grant = body_grant(actor, workspace)
    if name in NAMES:
        return Console.of(workspace), name, grant
    path = guest_logs.path_of(name, sources_of(workspace).values())
    if path is None:
        raise NotFound("There is no such log file; /logs/list names them.")
    return guest_log_address(workspace), path, grant


async def _tail(source: LogSource, place: Console | GuestAddress, lines: int) -> bytes:
    if isinstance(place, Console):
        return await place.tail(lines)
    path = source.path or ""
    return await call_guest(place, lambda session: guest_logs.read_tail(session, path, lines), CALL_SECONDS)


async def _clear(logs: AllLogs) -> None:
    names = [source.name for source in logs.sources]
    async with entered_in_thread(cleared_on_commit(logs.console.workspace_id, names, logs.console.host)):
        if logs.guest is not None:
            await call_guest(logs.guest, lambda session: guest_logs.clear_logs(session, logs.sources), CLEAR_SECONDS)
        await logs.console.clear()


def _logs_body(data: bytes, source: LogSource, last: int) -> dict[str, object]:
    logs = log_entries(data, source.name, source.log_format, last=last)
    body: dict[str, object] = LogsResponse({"source": source.name, "logs": logs}).data
    return body
