"""`/staff/hosts` and `/join` (wire contract, section 11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, ClassVar

from django.conf import settings
from django.db import transaction
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from redis import RedisError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet, ViewSet

from common.attempts import AttemptLimits, FailureLimit
from common.errors import NotFound, VMUnavailable
from common.openapi import MessageResponse, refused
from common.pagination import PagePagination
from common.private_network import AUTHORITY, network_folder
from common.requests import validated, validated_query
from common.responses import ok, respond
from hosts import selectors, services
from hosts import serializers as bodies
from hosts.authentication import ACT, READ, StaffAuthentication, StaffPermission, StaffRequest, member_of
from hosts.errors import TokenInvalid
from hosts.joins import join_machine
from hosts.move_bodies import DrainHostRequest
from hosts.selectors import get_host
from hosts.tokens import token_create
from staff.audit import Target, record_entry
from vmbackend.host_states import HostState
from vmbackend.models import Host
from workspaces.host_changes import host_give_up, host_state_change
from workspaces.moves.drains import DrainRequest, host_drain

# Of all callers together: a token lives for minutes, and who has one needs one attempt.
WRONG_TOKENS = AttemptLimits("join", 10, 10, 60)
NOT_FROM_HERE = "`invalid_state`: not from the state that it is in"
PEM = "application/x-pem-file"
NOT_OPENED = "`not_found`: the instance was not opened to other machines"
TAKEN = (
    "`machine_joined`; `name_taken`; `subnet_overlaps`: a route or the address of this machine is another host's, as "
    "`details` say"
)


class HostTokenViewSet(ViewSet):
    """Tokens with which machines join."""

    authentication_classes = [StaffAuthentication]
    permission_classes = [StaffPermission]
    needs: ClassVar[dict[str, str]] = {"create": ACT}

    @extend_schema(
        request=bodies.NewTokenRequest,
        responses={
            201: bodies.NewTokenResponse,
            **refused({409: "`conflict`: the instance was not opened to other machines yet"}),
        },
    )
    def create(self, request: StaffRequest) -> Response:
        """Make a token with which one machine joins as a host."""
        data = validated(bodies.NewTokenRequest, request)
        with transaction.atomic():
            made = token_create(
                name=data.get("name", ""), ttl_seconds=data["ttl_seconds"], actor=member_of(request).actor
            )
            record_entry(member_of(request), "host.make_token", Target.of(made.token))
        return respond(
            bodies.NewTokenResponse, 201, token=made.text, command=made.command, expires_at=made.token.expires_at
        )


class HostPagination(PagePagination):
    results_field = "hosts"


class HostViewSet(GenericViewSet[Any]):
    """Hosts, for staff."""

    authentication_classes = [StaffAuthentication]
    permission_classes = [StaffPermission]
    needs: ClassVar[dict[str, str]] = {
        "list": READ,
        "retrieve": READ,
        **dict.fromkeys(("partial_update", "drain", "activate", "maintenance", "give_up", "destroy"), ACT),
    }
    queryset = Host.objects.all()
    serializer_class = bodies.HostObject
    pagination_class = HostPagination

    @extend_schema(parameters=[bodies.ListHostsQuery])
    def list(self, request: StaffRequest) -> Response:
        """List the hosts by name."""
        page = self.paginate_queryset(selectors.listed_hosts(**validated_query(bodies.ListHostsQuery, request)))
        return self.get_paginated_response(bodies.HostObject(page, many=True).data)

    @extend_schema(responses=bodies.HostResponse)
    def retrieve(self, request: StaffRequest, host_id: str) -> Response:
        """Return one host, with its images, its orphans, and what is lost with it."""
        return _shown(get_host(host_id))

    @extend_schema(
        request=bodies.ChangeHostRequest,
        responses={200: bodies.HostResponse, **refused({409: "`name_taken`: another host has the name"})},
    )
    def partial_update(self, request: StaffRequest, host_id: str) -> Response:
        """Change name, labels or zone. New machines are placed by labels and zone; those that are there stay."""
        host = get_host(host_id)
        changes = validated(bodies.ChangeHostRequest, request)
        with _recorded(request, host, "change", changes.pop("reason")):
            services.host_change(host=host, **changes)
        return _shown(get_host(host_id))

    @extend_schema(request=DrainHostRequest, responses={202: bodies.DrainResponse, **refused({409: NOT_FROM_HERE})})
    def drain(self, request: StaffRequest, host_id: str) -> Response:
        """Place nothing new on the host, and move away what is there: what is off first, then what sleeps, then what
        runs. A host that is being drained goes on as it is.
        """
        host = get_host(host_id)
        data = validated(DrainHostRequest, request)
        asked = DrainRequest(
            data["reason"],
            memory=data["memory"] == "keep",
            waits=data["running"] == "wait",
            deadline_seconds=data.get("deadline_seconds"),
        )
        repeated = host.state == HostState.DRAINING
        with nullcontext() if repeated else _recorded(request, host, HostState.DRAINING, asked.reason):
            drain = host_drain(host=host, asked=asked, actor=member_of(request).actor)
        return respond(bodies.DrainResponse, 202, drain=drain, host=get_host(host_id))

    @extend_schema(request=bodies.ReasonRequest, responses={200: bodies.HostResponse, **refused({409: NOT_FROM_HERE})})
    def activate(self, request: StaffRequest, host_id: str) -> Response:
        """Place and start machines on the host again."""
        return self._change_state(request, host_id, HostState.ACTIVE, 200)

    @extend_schema(request=bodies.ReasonRequest, responses={200: bodies.HostResponse, **refused({409: NOT_FROM_HERE})})
    def maintenance(self, request: StaffRequest, host_id: str) -> Response:
        """Start, wake and place nothing on the host. Machines that run stay as they are."""
        return self._change_state(request, host_id, HostState.MAINTENANCE, 200)

    @extend_schema(
        request=bodies.GiveUpRequest,
        responses={202: bodies.HostResponse, **refused({409: f"`host_is_alive`: its lease stands; {NOT_FROM_HERE}"})},
    )
    def give_up(self, request: StaffRequest, host_id: str) -> Response:
        """Give up a host that does not come back: its workspaces are lost, and their owners are told."""
        host = get_host(host_id)
        data = validated(bodies.GiveUpRequest, request)
        with _recorded(request, host, "give_up", data["reason"]):
            host_give_up(host_id=host.pk, confirm=data["confirm"])
        return _shown(get_host(host_id), 202)

    def _change_state(self, request: StaffRequest, host_id: str, to: HostState, status: int) -> Response:
        """Set the state, unless it is that already."""
        host = get_host(host_id)
        reason = validated(bodies.ReasonRequest, request)["reason"]
        if host.state != to:
            with _recorded(request, host, to, reason):
                host_state_change(host_id=host.pk, to=to)
        return _shown(get_host(host_id), status)

    @extend_schema(
        request=None,
        parameters=[bodies.RemoveHostQuery],
        responses={200: MessageResponse, **refused({409: "`host_in_use`: it has workspaces, as `details` say"})},
    )
    def destroy(self, request: StaffRequest, host_id: str) -> Response:
        """Remove a host that has no workspaces. Its credentials end at once.

        `reason` is read from a JSON body, or from the query if there is no body.
        """
        host = get_host(host_id)
        reading = validated if request.data else validated_query
        reason = reading(bodies.RemoveHostQuery, request)["reason"]
        target = Target.of(host)
        with transaction.atomic():
            services.host_remove(host_id=host.pk)
            record_entry(member_of(request), "host.remove", target, reason=reason)
        return ok(message="The host was removed.")


@contextmanager
def _recorded(request: StaffRequest, host: Host, action: str, reason: str) -> Iterator[None]:
    """Write the audit entry in the transaction of the change."""
    with transaction.atomic():
        yield
        record_entry(member_of(request), f"host.{action}", Target.of(host), reason=reason)


def _shown(host: Host, status: int = 200) -> Response:
    return respond(bodies.HostResponse, status, host=host)


class JoinViewSet(ViewSet):
    """Joins of machines. No credential but the token."""

    authentication_classes = []
    permission_classes = []

    @extend_schema(
        request=bodies.JoinRequest,
        responses={
            201: bodies.JoinResponse,
            **refused(
                {
                    400: "`validation_error`; `clock_off`; `protocol_unsupported`",
                    401: "`token_invalid`: unknown, expired, or used by another machine",
                    409: TAKEN,
                    429: "`rate_limited`: ten wrong tokens in a minute, of all callers",
                }
            ),
        },
        auth=[],
    )
    def create(self, request: Request) -> Response:
        """Make the machine that sends this a host. The same machine may ask again with its token: as after a join that
        died it gets fresh credentials of the same host.
        """
        checked = bodies.JoinRequest(data=request.data)
        checked.is_valid(raise_exception=True)
        try:
            made = join_machine(checked.validated_data["token"], checked.joining())
        except TokenInvalid:
            _wrong_tokens().record_failure("everywhere")
            raise
        except RedisError as error:
            raise VMUnavailable("Redis does not answer; run the same line again.") from error
        return respond(
            bodies.JoinResponse,
            201,
            host=made.host,
            instance=settings.ENV.instance,
            settings=settings.ENV.shared_variables(),
            credentials=made.credentials,
            peers=made.peers,
        )

    @extend_schema(responses={(200, PEM): OpenApiTypes.STR, **refused({404: NOT_OPENED})}, auth=[])
    def authority(self, request: Request) -> HttpResponse:
        """Return the certificate of the instance's own authority, whose fingerprint is in each token."""
        path = network_folder(settings.STATE) / AUTHORITY
        if not path.exists():
            raise NotFound("The instance was not opened to other machines.")
        return HttpResponse(path.read_text(), content_type=PEM)


@lru_cache(maxsize=1)
def _wrong_tokens() -> FailureLimit:
    return FailureLimit(WRONG_TOKENS)
