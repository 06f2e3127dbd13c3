"""The edge's questions: where does a request to a public port go? Asked once a second and port at least, and for each
request where not everybody may come in; so kept short.

Answers: 200 with `X-Upstream` (it runs), 202 (it sleeps; the edge asks the streams process, which waits), else what the
visitor sees. Nothing of the request but the host's name decides; the edge proves itself by its secret, and routes
nothing from outside to these paths.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from common.errors import DomainError, NotFound
from common.request_origin import client_address
from common.responses import error_response
from common.sse.runtime import in_thread
from edge.address import public_address
from edge.pages import page
from edge.secret import HEADER, edge_secret
from workspaces import last_used
from workspaces.edge_auth.wake_coalescer import wake_coalescer
from workspaces.models import PublicPort
from workspaces.states import Status

logger = logging.getLogger(__name__)

UPSTREAM = "X-Upstream"
AGAIN_SECONDS = 2
# It is on its way to run: whoever comes back in a moment finds it running.
COMES = frozenset(
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
    """`headers` tell when to come again, where that helps."""

    code = "workspace_not_running"
    status = 503
    message = "The workspace behind this address does not run."


TITLES = {403: "Not open to you", 404: "Nothing here", 503: "Not available now"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a public name stands for, as the rows have it now."""

    workspace_id: str
    port: int
    slug: str
    public_access: bool
    ingress: list[str]
    ingress_ports: list[int]
    status: str
    ready: bool
    ip: str | None

    @property
    def runs(self) -> bool:
        return self.status == Status.RUNNING and bool(self.ready)

    @property
    def upstream(self) -> str:
        """Where its program listens."""
        return f"{self.ip}:{self.port}"


_COLUMNS = [
    "workspace_id", "port", "slug", "workspace__public_access", "workspace__ingress", "workspace__ingress_ports",
    "workspace__status", "workspace__ready", "workspace__ip",
]  # fmt: skip


@require_GET
def authorize_port(request: HttpRequest) -> HttpResponse:
    """For a request to a public port; in the api process."""
    try:
        target = _target(request)
        if target.runs:
            last_used.record_request(target.workspace_id)
            return _upstream(target)
        if target.status in ASLEEP or target.status == Status.RUNNING:
            return HttpResponse(status=202)
        raise _not_running(target)
    except DomainError as exc:
        return _answer(request, exc)


@require_GET
async def wake_port(request: HttpRequest) -> HttpResponse:
    """For a request to a workspace that sleeps; in the streams process, where waiting costs no thread."""
    try:
        target = await in_thread(_target, request)
        woke = await _woke(target.workspace_id)
        # Asked anew: it may have been moved or shut meanwhile.
        target = await in_thread(_target, request)
        if target.status == Status.RUNNING:
            return _upstream(target)
        if target.status in ASLEEP:
            sentence = "is waking up" if woke else "sleeps, and cannot be woken now"
            raise NotRunning(f"The workspace behind this address {sentence}.", headers=_again())
        raise _not_running(target)
    except DomainError as exc:
        return _answer(request, exc)


async def _woke(workspace_id: str) -> bool:
    """Whether nothing stood in the way. What did is its owner's business, not the visitor's."""
    try:
        await wake_coalescer().ensure_running(workspace_id)
        return True
    except DomainError as exc:
        logger.info("%s is not woken: %s", workspace_id, exc.message)
        return False


def _target(request: HttpRequest) -> Target:
    told = request.headers
    return find_target(told.get(HEADER, ""), told.get("X-Edge-Host", ""), told.get("X-Forwarded-For", ""))


def find_target(secret: str, host: str, forwarded: str) -> Target:
    """What the edge asks for, by its three headers. Raises NotFound (not the edge), NotPublic, NotAllowed."""
    if not hmac.compare_digest(secret.encode(), edge_secret(settings.SECRET_KEY).encode()):
        raise NotFound("There is no such route or resource.")
    named = public_address(settings.PUBLIC_URL).label_of(host)
    if named is None:
        raise NotPublic
    slug, hash_ = named
    target = _published(hash_)
    if target is None:
        raise NotPublic
    if slug not in ("", target.slug) or not _is_open(target):
        raise NotPublic
    if target.ingress and not is_inside(client_address(forwarded), target.ingress):
        raise NotAllowed
    return target


def _published(hash_: str) -> Target | None:
    with connection.cursor() as cursor:
        cursor.execute(_compiled(), [hash_])
        row = cursor.fetchone()
    if row is None:
        return None
    workspace_id, port_, slug, public_access, ingress, ingress_ports, *rest = row
    return Target(workspace_id, port_, slug, public_access, json.loads(ingress), json.loads(ingress_ports), *rest)


@cache
def _compiled() -> str:
    """This is asked more often than anything else, and compiling it takes as long as the rest of an answer."""
    return PublicPort.objects.filter(hash="").order_by().values_list(*_COLUMNS).query.sql_with_params()[0]


def _is_open(target: Target) -> bool:
    return target.public_access and (not target.ingress_ports or target.port in target.ingress_ports)


def is_inside(address: str, networks: Sequence[str]) -> bool:
    """Whether an address lies in one of the networks; none that cannot be read does."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None) or found
    return any(mapped in ip_network(network) for network in networks)


def _upstream(target: Target) -> HttpResponse:
    return HttpResponse(headers={UPSTREAM: target.upstream})


def _not_running(target: Target) -> NotRunning:
    if target.status in COMES:
        return NotRunning("The workspace behind this address is starting.", headers=_again())
    if target.status == Status.PAUSED:
        return NotRunning("The workspace behind this address is paused.")
    return NotRunning()


def _again() -> dict[str, str]:
    return {"Retry-After": str(AGAIN_SECONDS)}


def _answer(request: HttpRequest, error: DomainError) -> HttpResponse:
    """What the visitor sees: a page for a browser, else the error body."""
    response: HttpResponse
    if "text/html" in request.headers.get("Accept", "") and error.status in TITLES:
        response = HttpResponse(page(TITLES[error.status], error.message), status=error.status, headers=error.headers)
    else:
        response = error_response(error)
    response["Cache-Control"] = "no-store"
    return response
