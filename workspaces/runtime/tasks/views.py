"""Views of `/r/exec` (wire contract, section 4b, "Tasks")."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.response import Response

from common.async_threads import in_body_thread, in_request_thread
from common.body_rules import RAW, BodyRule, takes_body
from common.errors import NotFound, ValidationError
from common.openapi import refused
from common.requests import validated, validated_query
from common.responses import respond
from common.sse.response import stream_response
from vmbackend.guest.hold.task_output import TaskOutput
from vmbackend.guest.hold.tasks import HeldTasks
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet
from workspaces.runtime.tasks import services
from workspaces.runtime.tasks.errors import UNKNOWN_TASK
from workspaces.runtime.tasks.serializers import (
    FollowedTaskRequest,
    RunTaskRequest,
    TaskInputQuery,
    TaskInputResponse,
    TaskQuery,
    TaskRemovedResponse,
    TaskResponse,
    TasksRemovedResponse,
    TasksResponse,
)
from workspaces.runtime.tasks.services import with_tasks
from workspaces.runtime.tasks.shown import short_fields, task_fields
from workspaces.runtime.tasks.streaming import open_stream

INPUT_BYTES = 1 << 20
CALL_SECONDS = 60.0
# Seconds by which a request may take longer than its task.
SLACK_SECONDS = 20.0
EVENTS = "text/event-stream"
FRAMES = (
    'Server-sent events, each with one JSON object on one line of `data`: `task_id` (`{"task_id"}`) first, `stdout` '
    'and `stderr` (`{"data"}`, base64) as the task writes, `gap` (`{"bytes"}`) where its log had to forget, and last '
    "`exit` (`exit_code`, -1 if there is none, `pid`, `status`, and `error` if it failed). `id` is `<task>-<offset>`: "
    "with it as `Last-Event-ID` a client goes on there. A comment comes after each 15 seconds without an event. A "
    "stream without `exit` was cut off, and the task goes on."
)
EVENTS_EXAMPLE = (
    'event: task_id\nid: 7-0\ndata: {"task_id":"7"}\n\n'
    'event: stdout\nid: 7-4\ndata: {"data":"b25lCg=="}\n\n'
    'event: exit\nid: 7-4\ndata: {"exit_code":0,"pid":212,"status":"exited"}\n\n'
)
OUTDATED = "`guest_kit_outdated`: the machine needs a restart for this"
STREAM: Any = {
    (200, EVENTS): OpenApiResponse(
        OpenApiTypes.STR,
        description=FRAMES,
        examples=[OpenApiExample("events", EVENTS_EXAMPLE, media_type=EVENTS)],
    )
}
STARTS = {
    400: "`validation_error`; `command_invalid`: the machine cannot start it",
    409: f"`vm_not_running`; {OUTDATED}",
    429: "`rate_limited`: too many tasks run in this workspace, or too many commands of this account",
}
ONE = {404: "`not_found`: there is no such task", 409: f"`vm_not_running`; {OUTDATED}"}
_TASK_ID = re.compile(r"[0-9]{1,18}")
_EVENT_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


class TasksViewSet(RuntimeViewSet):
    """Tasks: commands that go on without the client that has started them."""

    @extend_schema(request=RunTaskRequest, responses={200: TaskResponse, **refused(STARTS)})
    async def run(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Start a task and return it when it has ended. At the timeout all of it is killed (code 124).

        It goes on if the client leaves.
        """
        data = await in_request_thread(validated, RunTaskRequest, request)
        guest = await self.guest()
        work = partial(services.run_task, start=services.start_of(data), options=services.options_of(data))
        task = await guest.wait(partial(with_tasks, work=work), data["timeout_seconds"] + SLACK_SECONDS)
        return respond(TaskResponse, **task_fields(task))

    @extend_schema(request=FollowedTaskRequest, responses={**STREAM, **refused(STARTS)})
    async def run_streamed(self, request: RuntimeRequest, named_id: str = "") -> HttpResponseBase:
        """Start a task and return its events. It goes on if the client leaves."""
        data = await in_request_thread(validated, FollowedTaskRequest, request)
        start, options = services.start_of(data), services.options_of(data)

        async def begin(tasks: HeldTasks) -> tuple[int, TaskOutput]:
            retained = services.retained_bytes()
            record, output = await tasks.start_followed(start, options, window=services.WINDOW, retained=retained)
            return record.id, output

        return stream_response(await open_stream(await self.guest(), begin, 0))

    @extend_schema(parameters=[TaskQuery], responses={**STREAM, **refused(ONE)})
    async def follow(self, request: RuntimeRequest, named_id: str = "") -> HttpResponseBase:
        """Return the events of a task: those that its log has, and those to come."""
        query = validated_query(TaskQuery, request)
        task = int(query["task_id"])
        wanted = _wanted_offset(request, task, query["offset"])

        async def begin(tasks: HeldTasks) -> tuple[int, TaskOutput]:
            retained = services.retained_bytes()
            return task, await tasks.follow(task, offset=wanted, window=services.WINDOW, retained=retained)

        return stream_response(await open_stream(await self.guest(), begin, wanted))

    @extend_schema(responses={200: TasksResponse, **refused({409: ONE[409]})})
    async def list(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Return the tasks of the workspace, the newest first, at most 1,000."""
        found = await (await self.guest()).call(partial(with_tasks, work=services.list_tasks), CALL_SECONDS)
        return respond(TasksResponse, tasks=[short_fields(record) for record in found])

    @extend_schema(operation_id="r_exec_destroy_all", responses={200: TasksRemovedResponse, **refused({409: ONE[409]})})
    async def remove_all(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Kill and forget all tasks of the workspace."""
        work = partial(with_tasks, work=services.remove_tasks)
        return respond(TasksRemovedResponse, deleted=await (await self.guest()).call(work, CALL_SECONDS))

    @extend_schema(responses={200: TaskResponse, **refused(ONE)})
    async def show(self, request: RuntimeRequest, task_id: str, named_id: str = "") -> Response:
        """Return a task as it is now, with the end of its outputs."""
        work = partial(with_tasks, work=partial(services.show_task, task=_task_number(task_id)))
        return respond(TaskResponse, **task_fields(await (await self.guest()).call(work, CALL_SECONDS)))

    @extend_schema(responses={200: TaskRemovedResponse, **refused(ONE)})
    async def remove(self, request: RuntimeRequest, task_id: str, named_id: str = "") -> Response:
        """Kill a task, with all that it has started, and forget it."""
        number = _task_number(task_id)
        work = partial(with_tasks, work=lambda tasks: tasks.remove(number))
        record = await (await self.guest()).call(work, CALL_SECONDS)
        return respond(TaskRemovedResponse, message="The task is gone.", task=short_fields(record))

    @extend_schema(
        parameters=[TaskInputQuery],
        request={RAW: OpenApiTypes.BINARY},
        responses={
            200: TaskInputResponse,
            **refused(
                {
                    **ONE,
                    409: f"`task_ended`; `input_full`: nothing was taken; {ONE[409]}",
                    413: "`payload_too_large`: above 1 MiB",
                }
            ),
        },
    )
    @takes_body(BodyRule(stored_bytes=lambda: INPUT_BYTES))
    async def write_input(self, request: RuntimeRequest, task_id: str, named_id: str = "") -> Response:
        """Give a task input: all of the body, of at most 1 MiB, or nothing."""
        number, query = _task_number(task_id), validated_query(TaskInputQuery, request)
        data = await in_body_thread(self.http_request.read)
        work = partial(with_tasks, work=lambda tasks: tasks.give_input(number, data, ends=query["eof"]))
        await (await self.guest()).call(work, CALL_SECONDS)
        return respond(TaskInputResponse, bytes_written=len(data))


def _task_number(task_id: str) -> int:
    """Return the number of a task. Raise NotFound for what no task has."""
    if not _TASK_ID.fullmatch(task_id):
        raise NotFound(UNKNOWN_TASK)
    return int(task_id)


def _wanted_offset(request: RuntimeRequest, task: int, offset: int | None) -> int:
    """Return the offset at which a stream begins. Raise ValidationError if the id is another task's."""
    header = request.headers.get("Last-Event-ID", "")
    if offset is not None or not header:
        return offset or 0
    found = _EVENT_ID.fullmatch(header)
    if found is None or int(found[1]) != task:
        raise ValidationError(details={"Last-Event-ID": ["It is not the id of an event of this task."]})
    return int(found[2])
