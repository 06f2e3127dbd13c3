"""Authorization of requests to public ports. The edge calls it once per second and port, and for each request if access
is restricted; so every statement counts.

Responses: 200 with `X-Upstream` (it runs), 202 (it sleeps; the edge calls the streams process, which waits), else the
response that the visitor sees. The host name and the client's address decide; the edge sends both in its header, with
its secret. It does not route requests from outside to these paths.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address, ip_network
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from common.compiled_query import CompiledQuery
from common.edge_header import HEADER, EdgeFacts, edge_facts
from common.errors import DomainError, NotFound
from common.request_origin import client_address
from common.responses import error_response
from common.sse.runtime import in_thread
from domains.selectors import port_of_name
from edge.addresses import public_address
from edge.pages import page
from vmbackend.host_states import UNREACHABLE
from workspaces import last_used
from workspaces.edge_auth.private_ports import Opening, Visit, admit_visitor, wrong_links_counted
from workspaces.edge_auth.wake_coalescer import wake_coalescer
from workspaces.host_away import host_unavailable, with_host
from workspaces.models import PublicPort
from workspaces.models.public_port import Access
from workspaces.states import Status

logger = logging.getLogger(__name__)

UPSTREAM = "X-Upstream"
# Says of a private port that the edge must remove what opened it, and keep nothing.
ACCESS = "X-Access"
RETRY_AFTER_SECONDS = 2
# The workspace is about to run: a retry after a moment finds it running.
STARTING_UP = frozenset(
    {Status.QUEUED, Status.CREATING, Status.STARTING, Status.RESTARTING, Status.RESUMING, Status.RESIZING}
)
ASLEEP = frozenset({Status.SLEEPING, Status.WAKING, Status.SUSPENDING})


class NotPublic(DomainError):
    code = "not_found"
    status = 404
    message = "Nothing is published at this address."


class NotAllowed(DomainError):
    code = "forbidden"
    status = 403
    message = "This address is not open to the network that you come from."


class NotRunning(DomainError):
    """Error of a workspace that does not run, with `Retry-After` if a retry helps."""

    code = "workspace_not_running"
    status = 503
    message = "The workspace behind this address does not run."


TITLES = {401: "A link is needed", 403: "Not open to you", 404: "Nothing here", 503: "Not available now"}


@dataclass(frozen=True, slots=True)
class Target:
    """The port and workspace of a public name, as the rows are now. `opening`: the answer to a request that is a link's
    address; it must not reach the workspace.
    """

    port_id: int
    workspace_id: str
    port: int
    slug: str
    access: str
    public_access: bool
    ingress: list[str]
    ingress_ports: list[int]
    account_active: bool
    status: str
    ready: bool
    ip: str | None
    host_state: str | None
    host_since: datetime | None
    opening: Opening | None = None

    @property
    def runs(self) -> bool:
        return self.status == Status.RUNNING and bool(self.ready) and not self.is_away

    @property
    def is_away(self) -> bool:
        """Return whether its host cannot be reached."""
        return self.host_state == UNREACHABLE

    @property
    def is_private(self) -> bool:
        return self.access == Access.PRIVATE

    @property
    def is_open_to_all(self) -> bool:
        """Return whether the answer is the same for every caller."""
        return not self.is_private and not self.ingress

    @property
    def upstream(self) -> str:
        """Return the address at which the workspace's program listens."""
        return f"{self.ip}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the answer that lets the caller in."""
        return {UPSTREAM: self.upstream, **({ACCESS: Access.PRIVATE.value} if self.is_private else {})}


_COLUMNS = [
    "id", "workspace_id", "port", "slug", "access", "workspace__public_access", "workspace__ingress",
    "workspace__ingress_ports", "workspace__account__is_active", "workspace__status", "workspace__ready",
    "workspace__ip", "joined_host_state", "joined_host_since",
]  # fmt: skip


@require_GET
def authorize_port(request: HttpRequest) -> HttpResponse:
    """Answer for a request to a public port; in the api process."""
    try:
        target = _target(request)
        if target.opening:
            return target.opening.response()
        if target.runs:
            last_used.record_request(target.workspace_id)
            return _upstream(target)
        require_host(target)
        if target.status in ASLEEP or target.status == Status.RUNNING:
            return HttpResponse(status=202)
        raise _not_running(target)
    except DomainError as exc:
        return _error_page(request, exc)


@require_GET
async def wake_port(request: HttpRequest) -> HttpResponse:
    """Answer for a request to a workspace that sleeps; in the streams process, where a wait does not hold a thread."""
    try:
        target = await in_thread(_target, request)
        if target.opening:
            return target.opening.response()
        require_host(target)
        is_waking = await _wake(target.workspace_id)
        # Read again: address or access may have changed during the wait.
        target = await in_thread(_target, request)
        if target.status == Status.RUNNING:
            return _upstream(target)
        if target.status in ASLEEP:
            state = "is waking up" if is_waking else "sleeps, and cannot be woken now"
            raise NotRunning(f"The workspace behind this address {state}.", headers=_retry_after())
        raise _not_running(target)
    except DomainError as exc:
        return _error_page(request, exc)


async def _wake(workspace_id: str) -> bool:
    """Wake a workspace. Return False if it cannot be woken; the reason is logged, as it concerns the owner and not the
    visitor.
    """
    try:
        await wake_coalescer().ensure_running(workspace_id)
        return True
    except DomainError as exc:
        logger.info("%s is not woken: %s", workspace_id, exc.message)
        return False


def _target(request: HttpRequest) -> Target:
    with wrong_links_counted(request):
        return find_target(edge_facts(request.headers.get(HEADER, ""), settings.SECRET_KEY), request.META)


def find_target(facts: EdgeFacts | None, meta: Mapping[str, Any]) -> Target:
    """Return the target of a request, by the edge's header and the request's WSGI variables.

    Raise NotFound (not the edge), NotPublic, NotAllowed, LinkNeeded, LinkUnknown.
    """
    if facts is None:
        raise NotFound("There is no such route or resource.")
    named = public_address(settings.PUBLIC_URL).label_of(facts.host)
    target = _published(named[1]) if named else _of_custom_domain(facts.host)
    if target is None or not _is_open(target):
        raise NotPublic
    if named and named[0] not in ("", target.slug):
        raise NotPublic
    if target.ingress and not is_inside(client_address(facts.forwarded), target.ingress):
        raise NotAllowed
    if target.is_private:
        return replace(target, opening=admit_visitor(target.port_id, Visit.of(meta, facts.host)))
    return target


def _of_custom_domain(host: str) -> Target | None:
    """Return the public port to which a user's domain leads."""
    found = port_of_name(host.lower().removesuffix("."))
    if found is None:
        return None
    workspace_id, port_ = found
    hash_ = PublicPort.objects.filter(workspace_id=workspace_id, port=port_).values_list("hash", flat=True).first()
    return _published(hash_) if hash_ else None


def _published(hash_: str) -> Target | None:
    row = _PUBLISHED.first_row([hash_])
    return None if row is None else Target(*row)


def _rows(hashes: Sequence[str]) -> QuerySet[PublicPort, tuple[Any, ...]]:
    return with_host(PublicPort.objects.filter(hash__in=hashes), "workspace__").order_by().values_list(*_COLUMNS)


# The most frequent query; compiling it takes as long as the rest of the request.
_PUBLISHED = CompiledQuery(_rows)


def _is_open(target: Target) -> bool:
    is_public = target.public_access and target.account_active
    return is_public and (not target.ingress_ports or target.port in target.ingress_ports)


def is_inside(address: str, networks: Sequence[str]) -> bool:
    """Return whether an address is in one of the networks; False for a malformed one."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    return any(mapped in ip_network(network) for network in networks)


def require_host(target: Target) -> None:
    """Raise VMUnavailable if the host of the workspace cannot be reached."""
    if target.is_away:
        raise host_unavailable(target.host_state, target.host_since)


def _upstream(target: Target) -> HttpResponse:
    return HttpResponse(headers=target.headers)


def _not_running(target: Target) -> NotRunning:
    if target.status in STARTING_UP:
        return NotRunning("The workspace behind this address is starting.", headers=_retry_after())
    if target.status == Status.PAUSED:
        return NotRunning("The workspace behind this address is paused.")
    return NotRunning()


def _retry_after() -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_SECONDS)}


def _error_page(request: HttpRequest, error: DomainError) -> HttpResponse:
    """Return the response that the visitor sees: a page for a browser, else the error body."""
    response: HttpResponse
    if "text/html" in request.headers.get("Accept", "") and error.status in TITLES:
        response = HttpResponse(page(TITLES[error.status], error.message), status=error.status, headers=error.headers)
    else:
        response = error_response(error)
    response["Cache-Control"] = "no-store"
    return response
