"""The client: one connection pool, one credential, the routes in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import httpx

from microvm.aio.auth import AsyncFixedAuth
from microvm.aio.files import AsyncFiles
from microvm.aio.group import LONG
from microvm.aio.routes.api_keys import AsyncApiKeyRoutes
from microvm.aio.routes.assist import AsyncAssistRoutes
from microvm.aio.routes.cdn import AsyncCdnRoutes
from microvm.aio.routes.credentials import AsyncCredentialRoutes
from microvm.aio.routes.credits import AsyncCreditRoutes
from microvm.aio.routes.domains import AsyncDomainRoutes
from microvm.aio.routes.hosts import AsyncHostRoutes
from microvm.aio.routes.images import AsyncImageRoutes
from microvm.aio.routes.lifecycle import AsyncLifecycleRoutes
from microvm.aio.routes.metadata import AsyncMetadataRoutes
from microvm.aio.routes.namespaces import AsyncNamespaceRoutes
from microvm.aio.routes.network import AsyncNetworkRoutes
from microvm.aio.routes.notifications import AsyncNotificationRoutes
from microvm.aio.routes.pages import AsyncPageRoutes
from microvm.aio.routes.ports import AsyncPortRoutes
from microvm.aio.routes.quota import AsyncQuotaRoutes
from microvm.aio.routes.resources import AsyncResourceRoutes
from microvm.aio.routes.snapshots import AsyncSnapshotRoutes
from microvm.aio.routes.ssh import AsyncSshRoutes
from microvm.aio.routes.tokens import AsyncTokenRoutes
from microvm.aio.routes.usage import AsyncUsageRoutes
from microvm.aio.routes.webhooks import AsyncWebhookRoutes
from microvm.aio.runtime_auth import AsyncRuntimeAuth
from microvm.aio.runtimes import AsyncOpenRuntime, AsyncRuntimes
from microvm.aio.sandboxes import AsyncSandboxes
from microvm.aio.streams import AsyncLogs, AsyncMetrics, AsyncWorkloads
from microvm.aio.token_auth import AsyncTokenAuth
from microvm.aio.transport import AsyncTransport
from microvm.aio.workspaces import AsyncWorkspaces
from microvm.credentials import AccessTokens, ClientCredential, bearer_header
from microvm.retries import Retries, Sending


class AsyncMicrovm:
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
        http: httpx.AsyncClient | None = None,
    ) -> None:
        if bool(token) == bool(client_id and client_secret):
            raise ValueError("Give client_id and client_secret, or a token.")
        headers = bearer_header(token) if token else ClientCredential(client_id, client_secret).headers()
        pool = http or httpx.AsyncClient(base_url=base_url, timeout=timeout)
        fixed = AsyncFixedAuth(headers)
        self._transport = AsyncTransport(pool, fixed, retries or Retries())
        if access_tokens is not None and not token:
            self._transport = AsyncTransport(pool, AsyncTokenAuth(self._transport, access_tokens), retries or Retries())
        self._add_groups(self._transport)

    def _add_groups(self, transport: AsyncTransport) -> None:
        self.workspaces = AsyncWorkspaces(transport)
        self.snapshots = AsyncSnapshotRoutes(transport)
        self.quota = AsyncQuotaRoutes(transport)
        self.resources = AsyncResourceRoutes(transport)
        self.lifecycle = AsyncLifecycleRoutes(transport)
        self.metadata = AsyncMetadataRoutes(transport)
        self.usage = AsyncUsageRoutes(transport)
        self.metrics = AsyncMetrics(transport)
        self.logs = AsyncLogs(transport)
        self.files = AsyncFiles(transport)
        self.images = AsyncImageRoutes(transport)
        self.network = AsyncNetworkRoutes(transport)
        self.ports = AsyncPortRoutes(transport)
        self.runtime_access = AsyncRuntimes(transport)
        self.ssh = AsyncSshRoutes(transport)
        self.workloads = AsyncWorkloads(transport)
        self.domains = AsyncDomainRoutes(transport)
        self.sandboxes = AsyncSandboxes(transport)
        self.pages = AsyncPageRoutes(transport)
        self.namespaces = AsyncNamespaceRoutes(transport)
        self.credits = AsyncCreditRoutes(transport)
        self.webhooks = AsyncWebhookRoutes(transport)
        self.notifications = AsyncNotificationRoutes(transport)
        self.assist = AsyncAssistRoutes(transport)
        self.cdn = AsyncCdnRoutes(transport)
        self.credentials = AsyncCredentialRoutes(transport)
        self.api_keys = AsyncApiKeyRoutes(transport)
        self.tokens = AsyncTokenRoutes(transport)
        self.hosts = AsyncHostRoutes(transport)

    async def call(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a route that has no method here; `path` is as the API's description has it, from its slash on.

        Raises ApiError, ConnectionFailed.
        """
        return await self._transport.call(Sending(method, path, query=query or {}, body=body, timeout=LONG))

    async def runtime(self, workspace: str, *, enable: bool = False) -> AsyncOpenRuntime:
        """The inside of a workspace: its files and tasks. Its token is renewed as long as the client is used.

        `enable`: switch it on if it is off; otherwise this raises Conflict (`runtime_disabled`).
        """
        access = self.runtime_access
        found = await (access.enable(workspace) if enable else access.token(workspace))
        auth = AsyncRuntimeAuth(self._transport, workspace, found["token"])
        return AsyncOpenRuntime(self._transport.with_auth(auth, found["url"].rstrip("/")))

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
