"""`{url}/proxy/...` (wire contract, section 4b, "Proxy")."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema

from common.body_rules import UNLIMITED, BodyRule, takes_body
from common.errors import MethodNotAllowed
from common.sent_heads import sent_head
from workspaces.data_plane.holders import bearer_token
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet
from workspaces.runtime.proxy.exchange import ProxiedRequest
from workspaces.runtime.proxy.heads import guest_headers
from workspaces.runtime.proxy.services import open_answer
from workspaces.runtime.proxy.targets import find_destination

PLACE = b"/proxy"
WHOLE = BodyRule(stored_bytes=lambda: UNLIMITED, streamed_bytes=lambda: UNLIMITED)
# Methods that viewsets know; every other one is passed on, too.
METHODS = dict.fromkeys(("get", "head", "post", "put", "patch", "delete"), "pass_on")


class ProxyViewSet(RuntimeViewSet):
    """Requests to servers that listen on the loopback of a machine only."""

    body_rule = WHOLE

    def _handler(self) -> Any:
        """Any method is passed on."""
        return self.pass_on

    # The API's description has no answers that others make; docs/runtime.md describes the route.
    @extend_schema(exclude=True)
    @takes_body(WHOLE)
    async def pass_on(self, request: RuntimeRequest, inner_path: str, named_id: str = "") -> HttpResponseBase:
        """Pass a request on to a server on the machine's loopback, and its answer back, both as they come.

        Without a header or query field that names the target, the path begins with its port. Headers of one hop, the
        token and the target are not passed on; the answer sets no cookies, and a browser shows it in a sandbox.
        """
        if request.method == "CONNECT":
            raise MethodNotAllowed
        passed = self._passed_request()
        guest = await self.guest()
        return await open_answer(guest, passed, self.http_request)

    def _passed_request(self) -> ProxiedRequest:
        """Return the request as the server gets it. Raise ValidationError."""
        head, token = sent_head(self.http_request), bearer_token(self.http_request)
        # Nothing before it has that word: a workspace's id, and the alias of the target.
        path = head.path.partition(PLACE)[2]
        port = self.workspace.control_port
        found = find_destination(head.headers, path, head.query, token=token, control_port=port)
        cookies = frozenset({settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME})
        headers = guest_headers(head.headers, token=token, cookies=cookies)
        return ProxiedRequest(str(self.http_request.method).encode(), found.path, headers, found.target)
