"""`/s/:id/terminal` (wire contract, section 4): POST runs a command, GET is a page with terminals."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from common.async_threads import in_render_thread
from common.async_views import ShortResponse
from common.openapi import refused
from common.parsers import UnstoredObjectParser
from sandboxes.level.base import SandboxLevelViewSet, SandboxRequest
from sandboxes.level.terminal import services
from sandboxes.level.terminal.serializers import SandboxCommandRequest, SandboxCommandResponse
from sandboxes.level.terminal_page.responses import page_response
from workspaces.commands.output import encoded_result
from workspaces.commands.requested import EXEC_SLACK_SECONDS

SHORT_OUTPUT = 8 * 1024  # bytes


class SandboxCommandsViewSet(SandboxLevelViewSet):
    """Commands without a terminal of their own, and the page at the same address."""

    parser_classes = [UnstoredObjectParser]
    http_method_names = ["get", "head", "post"]

    @property
    def is_page(self) -> bool:
        """The page takes no credential and looks at no sandbox."""
        return getattr(self.request, "method", "") in ("GET", "HEAD")

    def get_authenticators(self) -> Any:
        return [] if self.is_page else super().get_authenticators()

    def get_permissions(self) -> Any:
        return [] if self.is_page else super().get_permissions()

    @extend_schema(
        auth=[],
        request=None,
        responses={
            (200, "text/html"): OpenApiTypes.STR,
            **refused({503: "`page_not_installed`: its files could not be fetched when the platform was set up"}),
        },
    )
    async def page(self, request: Request, sandbox_id: str) -> HttpResponse:
        """A page with terminals, for a browser: `{sandbox.url}/terminal#token=<token>`.

        The token in the fragment never reaches the server; the page removes it from the address at once, keeps it in
        memory only, and asks for it if there is none. The page is the same for every id, existing or not, and wakes
        nothing.
        """
        return page_response()

    @extend_schema(
        request=SandboxCommandRequest,
        responses={
            200: SandboxCommandResponse,
            **refused(
                {
                    400: "`validation_error`; `command_invalid`: no such directory",
                    409: "`vm_not_running`",
                    429: "`rate_limited`: too many commands run at once, of this account, in this machine or of all; "
                    "`Retry-After` says in how many seconds to try again",
                }
            ),
        },
    )
    async def run(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Run a command to its end. At the timeout it is killed, and its output so far is the answer.

        At most 1 MiB of each output is returned, the rest is dropped and `truncated` set. `encoding: "base64"` gives
        both byte for byte; as text, `lossy` says whether bytes that are no UTF-8 were replaced. The command continues
        if the client disconnects.
        """
        data = await self.body(SandboxCommandRequest)
        guest = await self.guest()
        result = await guest.run(
            lambda session: services.command_run(
                session,
                command=data["command"],
                cwd=data.get("cwd"),
                env=data["env"],
                timeout_ms=data["timeout"],
            ),
            data["timeout"] / 1000 + EXEC_SLACK_SECONDS,
        )

        def body() -> Any:
            return SandboxCommandResponse(encoded_result(result, data["encoding"])).data

        if len(result.stdout) + len(result.stderr) <= SHORT_OUTPUT:
            return ShortResponse(body())
        return await in_render_thread(lambda: Response(body()))
