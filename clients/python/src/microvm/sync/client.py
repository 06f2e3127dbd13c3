"""The client: one connection pool, one credential, the routes in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import httpx

from microvm.credentials import AccessTokens, ClientCredential, bearer_header
from microvm.retries import Retries, Sending
from microvm.sync.auth import FixedAuth
from microvm.sync.files import Files
from microvm.sync.group import LONG
from microvm.sync.routes.api_keys import ApiKeyRoutes
from microvm.sync.routes.assist import AssistRoutes
from microvm.sync.routes.cdn import CdnRoutes
from microvm.sync.routes.credentials import CredentialRoutes
from microvm.sync.routes.credits import CreditRoutes
from microvm.sync.routes.domains import DomainRoutes
from microvm.sync.routes.images import ImageRoutes
from microvm.sync.routes.lifecycle import LifecycleRoutes
from microvm.sync.routes.metadata import MetadataRoutes
from microvm.sync.routes.namespaces import NamespaceRoutes
from microvm.sync.routes.network import NetworkRoutes
from microvm.sync.routes.notifications import NotificationRoutes
from microvm.sync.routes.pages import PageRoutes
from microvm.sync.routes.ports import PortRoutes
from microvm.sync.routes.quota import QuotaRoutes
from microvm.sync.routes.resources import ResourceRoutes
from microvm.sync.routes.ssh import SshRoutes
from microvm.sync.routes.tokens import TokenRoutes
from microvm.sync.routes.usage import UsageRoutes
from microvm.sync.routes.webhooks import WebhookRoutes
from microvm.sync.sandboxes import Sandboxes
from microvm.sync.streams import Logs, Metrics, Workloads
from microvm.sync.token_auth import TokenAuth
from microvm.sync.transport import Transport
from microvm.sync.workspaces import Workspaces


class Microvm:
    """`timeout` in seconds. `http` replaces the connection pool, with a `base_url` of its own; `close` closes it.

    Either `client_id` and `client_secret`, or `token`, an access token that somebody else renews. With `access_tokens`
    the secret is sent only for new tokens, and all other requests carry a token.
    """

    def __init__(
        self,
        base_url: str,
        *,
        client_id: str = "",
        client_secret: str = "",
        token: str = "",
        access_tokens: AccessTokens | None = None,
        timeout: float = 30,
        retries: Retries | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        if bool(token) == bool(client_id and client_secret):
            raise ValueError("Give client_id and client_secret, or a token.")
        headers = bearer_header(token) if token else ClientCredential(client_id, client_secret).headers()
        pool = http or httpx.Client(base_url=base_url, timeout=timeout)
        fixed = FixedAuth(headers)
        self._transport = Transport(pool, fixed, retries or Retries())
        if access_tokens is not None and not token:
            self._transport = Transport(pool, TokenAuth(self._transport, access_tokens), retries or Retries())
        self._add_groups(self._transport)

    def _add_groups(self, transport: Transport) -> None:
        self.workspaces = Workspaces(transport)
        self.quota = QuotaRoutes(transport)
        self.resources = ResourceRoutes(transport)
        self.lifecycle = LifecycleRoutes(transport)
        self.metadata = MetadataRoutes(transport)
        self.usage = UsageRoutes(transport)
        self.metrics = Metrics(transport)
        self.logs = Logs(transport)
        self.files = Files(transport)
        self.images = ImageRoutes(transport)
        self.network = NetworkRoutes(transport)
        self.ports = PortRoutes(transport)
        self.ssh = SshRoutes(transport)
        self.workloads = Workloads(transport)
        self.domains = DomainRoutes(transport)
        self.sandboxes = Sandboxes(transport)
        self.pages = PageRoutes(transport)
        self.namespaces = NamespaceRoutes(transport)
        self.credits = CreditRoutes(transport)
        self.webhooks = WebhookRoutes(transport)
        self.notifications = NotificationRoutes(transport)
        self.assist = AssistRoutes(transport)
        self.cdn = CdnRoutes(transport)
        self.credentials = CredentialRoutes(transport)
        self.api_keys = ApiKeyRoutes(transport)
        self.tokens = TokenRoutes(transport)

    def call(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a route that has no method here; `path` is as the API's description has it, from its slash on.

        Raises ApiError, ConnectionFailed.
        """
        return self._transport.call(Sending(method, path, query=query or {}, body=body, timeout=LONG))

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
