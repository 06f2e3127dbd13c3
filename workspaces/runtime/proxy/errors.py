"""Errors of the proxy as the API has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import DomainError, RateLimited
from vmbackend.guest.hold import HoldUnsupported, TerminalLimit
from vmbackend.guest.hold.errors import NotConnected, RequestUnknown
from workspaces.errors import GuestKitOutdated

RETRY_SECONDS = 5


class ProxyRefused(DomainError):
    code = "proxy_refused"
    status = 502
    message = "Nothing in the machine listens at this port of its loopback."


class ProxyTimeout(DomainError):
    code = "proxy_timeout"
    status = 504
    message = "The server in the machine has not answered for 60 seconds."


class ProxyBroken(DomainError):
    """Only within a response that has begun: its client sees a connection that breaks."""


@contextmanager
def connection_errors() -> Iterator[None]:
    """Translate the errors of opening a connection; those of any guest are left to `workspaces.guests`."""
    try:
        yield
    except NotConnected as exc:
        raise ProxyRefused from exc
    except TerminalLimit as exc:
        message = "As many proxied connections are open in this workspace as may; try again later."
        raise RateLimited(message, headers={"Retry-After": str(RETRY_SECONDS)}) from exc
    except (RequestUnknown, HoldUnsupported) as exc:
        raise GuestKitOutdated from exc
