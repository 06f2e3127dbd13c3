"""Holders of tokens that open the inside of a machine: how a token comes, what is read of the machine it names, and
whether anything may run there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.http import HttpRequest

from common.errors import Unauthorized
from common.wrong_secrets import count_wrong_secret
from namespaces.models import Namespace
from namespaces.selectors import require_open

# Columns of the workspace that its level needs. Above all not the encrypted ones.
COLUMNS = (
    "account_id", "namespace_id", "status", "ready", "ip", "control_port", "ssh_host_key", "applied_disk_size_mb",
)  # fmt: skip
NAMESPACE_COLUMNS = (
    "account_id", "slug", "status", "suspended_by_hand", "suspended_by_quota", "quota_stops_workspaces", "deleted_at",
)  # fmt: skip
# Reasons why what a token has opened ends, as its client reads them.
REPLACED = "the token was replaced"
DELETED = "the machine was deleted"
INACTIVE = "the account is not active"
SUSPENDED = "the namespace is suspended"


class TokenUnknown(Unauthorized):
    """A token was sent that no machine has or has had."""


def bearer_token(request: HttpRequest) -> str:
    """Return the token of the `Authorization` header; empty without one. Nothing else counts: no cookie, no query."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


@contextmanager
def wrong_tokens_counted(request: HttpRequest) -> Iterator[None]:
    """Within the context a wrong token counts for the address that sent it. Raise TooManyFailures in its place.

    One that was replaced does not count: it is no guess, and its program may go on with it for a while.
    """
    try:
        yield
    except TokenUnknown:
        count_wrong_secret(request)
        raise


def require_running_allowed(namespace: Namespace) -> None:
    """Raise NamespaceSuspended, QuotaExceeded if nothing may run in the namespace.

    One whose quota only blocks new starts lets a running machine go on, and the holder of its token use it.
    """
    if namespace.suspended_by_hand or namespace.quota_stops_workspaces:
        require_open(namespace)
