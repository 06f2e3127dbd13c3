"""`/workspace/:id/exec` (wire contract, section 3: added routes)."""

from __future__ import annotations

from django.conf import settings
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.response import Response

from accounts.authentication import ApiRequest
from common.async_threads import in_body_thread, in_request_thread, run_to_end
from common.async_views import AsyncViewSet
from common.body_rules import RAW, BodyRule, is_raw, takes_body
from common.errors import UnsupportedMediaType
from common.openapi import refused
from common.requests import validated_query
from common.sse.response import stream_response
from common.watched_bodies import BodyGrant, while_granted
from vmbackend.guest.deadlines import PLACE_SECONDS
from vmbackend.guest.session import ExecResult
from workspaces import last_used
from workspaces.commands.capacity import command_place
from workspaces.commands.input import input_of
from workspaces.commands.output import encoded_result
from workspaces.commands.requested import Command, requested_command
from workspaces.commands.serializers import ExecRequest, ExecResponse, InputQuery, InputResponse
from workspaces.commands.streaming import CommandStream
from workspaces.grants import revoked_grants
from workspaces.guests import call_guest
from workspaces.requested import requested_workspace

# The limit of a part of a command's input: several parts wait in memory.
INPUT_BYTES = 1024 * 1024
EVENTS = "text/event-stream"
FRAMES = (
    "With `stream`. Server-sent events, each with one JSON object on one line of `data`: `stdout` and `stderr` "
    '(`{"data", "lossy"}`) as the command writes, then `exit` (`exit_code`, `duration_ms`, `timed_out`, and `lossy`, '
    "whether any event before was). `data` is in the `encoding` of the request; as text it has whole characters. "
    "A comment "
    "`: heartbeat` comes after each 15 seconds without an event. A failure after the beginning is the last event, "
    "`error`: the "
    "body of an error and its `status` (`output_not_read`: the client did not read for 20 seconds after the timeout). "
    "A stream without `exit` or `error` ended because its connection did."
)
# tests/workspaces/test_command_streams.py sends it.
EVENTS_EXAMPLE = (
    'event: stdout\ndata: {"data":"one\\n","lossy":false}\n\n'
    'event: stderr\ndata: {"data":"two\\n","lossy":false}\n\n'
    'event: exit\ndata: {"exit_code":3,"duration_ms":12,"timed_out":false,"lossy":false}\n\n'
)


class CommandsViewSet(AsyncViewSet):
    """Commands in a workspace."""

    @extend_schema(
        request=ExecRequest,
        responses={
            (200, "application/json"): ExecResponse,
            (200, EVENTS): OpenApiResponse(
                OpenApiTypes.STR,
                description=FRAMES,
                examples=[OpenApiExample("events", EVENTS_EXAMPLE, media_type=EVENTS)],
            ),
            **refused(
                {
                    400: "`validation_error`; `command_invalid`: `details.exit_code` is 127 if there is no such "
                    "program, and 126 if it cannot be started for another reason",
                    409: "`vm_not_running`",
                    429: "`rate_limited`: too many commands run at once, of this account, in this machine or of all; "
                    "`Retry-After` says in how many seconds to try again",
                }
            ),
        },
    )
    async def execute(self, request: ApiRequest, workspace_id: str) -> HttpResponseBase:
        """Run a command in the workspace to its end. At the timeout the command and all that it began are killed (code
        124).

        At most 1 MiB of each output is returned; `truncated` says whether there was more. `encoding: "base64"` gives
        both byte for byte; as text, `lossy` says whether bytes that are not UTF-8 were replaced. The command continues
        if the client disconnects. It also continues if the credential is revoked, but the credential then gets no
        output (401).

        With `stream` the answer begins when the command runs, and is an event stream of its output, without a limit;
        the command waits while its client does not read. If its client disconnects, if the credential is revoked, or at
        the timeout, the command gets SIGTERM, and 2 seconds later what is left of it is killed.
        """
        command = await in_request_thread(requested_command, request, workspace_id)
        if command.is_streamed:
            return stream_response(await CommandStream(command).begin())
        async with while_granted(BodyGrant(command.grant, revoked_grants)):
            result = await run_to_end(_run(command))
        return Response(ExecResponse(encoded_result(result, command.encoding)).data)

    @extend_schema(
        parameters=[InputQuery],
        request={RAW: OpenApiTypes.BINARY},
        responses={
            200: InputResponse,
            **refused(
                {
                    404: "`not_found`: also while the command has not begun",
                    409: "`input_full`: the command did not read for 20 seconds, and nothing was taken; "
                    "`input_closed`: it reads no more; `conflict`: bytes before the part are missing",
                    413: "`payload_too_large`: above 1 MiB",
                    415: f"`unsupported_media_type`: not {RAW}",
                }
            ),
        },
    )
    @takes_body(BodyRule(stored_bytes=lambda: min(INPUT_BYTES, settings.BODY_LIMIT)))
    async def write_input(self, request: ApiRequest, workspace_id: str, stdin_key: str) -> Response:
        """Write a part of the standard input of a command with `stream` and this `stdin_key`, of at most 1 MiB.

        Answers when the command can take it. Sending a part again has no second effect. Send one part after the other.
        """
        workspace = await in_request_thread(requested_workspace, request.user, workspace_id, whole=True)
        data = await in_body_thread(self.http_request.read)
        if data and not is_raw(self.http_request.content_type or ""):
            raise UnsupportedMediaType(f"Send {RAW}.")
        query = validated_query(InputQuery, request)
        await input_of(workspace.pk, stdin_key).put(query["offset"], data, ends=query["eof"])
        return Response(InputResponse({"bytes_written": len(data)}).data)


async def _run(command: Command) -> ExecResult:
    """Run a command to its end. Raise RateLimited before anything reaches the guest, and the errors of `call_guest`."""
    with command_place(command.account_id):
        async with last_used.in_use_async(command.address.machine_id, command.seconds + PLACE_SECONDS):
            return await call_guest(command.address, command.execute, command.seconds)
