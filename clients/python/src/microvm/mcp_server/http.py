"""The HTTP transport of the MCP server: only with a token, only by known names, from this machine unless it is said."""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class HttpOptions:
    """`token` empty: one is made. `hosts` and `origins` beside those of this machine. `port` 0: a free one."""

    host: str
    port: int
    token: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def security(self, port: int) -> TransportSecuritySettings:
        """Return the allowed values of `Host` and `Origin`, so that a page in a browser can use no name of its own."""
        names = [f"{name}:{port}" for name in LOOPBACK]
        return TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[*names, *self.hosts],
            allowed_origins=[*(f"http://{name}" for name in names), *self.origins],
        )


class BearerRequired:
    """Answers 401 to requests without the token, before anything of them is read."""

    def __init__(self, application: Application, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_allowed(scope):
            await self._application(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        body = b'{"error": "Unauthorized", "message": "Send the bearer token of this server."}'
        await send({"type": "http.response.body", "body": body})

    def _is_allowed(self, scope: Scope) -> bool:
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        return scope["type"] == "http" and len(sent) == 1 and hmac.compare_digest(sent[0], self._expected)


def http_application(server: MCPServer[Any], options: HttpOptions, port: int, token: str) -> BearerRequired:
    """The ASGI application. `port` is where it listens."""
    made = server.streamable_http_app(
        streamable_http_path=PATH, host=options.host, transport_security=options.security(port)
    )
    return BearerRequired(made, token)


def serve_http(server: MCPServer[Any], options: HttpOptions, say: Callable[[str], None]) -> None:
    """Until a signal ends it. Raises OSError where the address cannot be listened on."""
    token = options.token or secrets.token_urlsafe(32)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.create_server((options.host, options.port), family=family, backlog=128)
    port = int(listener.getsockname()[1])
    shown = f"[{options.host}]" if ":" in options.host else options.host
    say(f"MCP server: http://{shown}:{port}{PATH}")
    if not options.token:
        say(f"Bearer token: {token}")
    if shown not in LOOPBACK:
        say("Warning: it is not encrypted; put a proxy with TLS before it.")
    config = uvicorn.Config(
        http_application(server, options, port, token),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",  # the protocol has none here: an upgrade is a request like others
    )
    uvicorn.Server(config).run(sockets=[listener])
