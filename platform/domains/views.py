"""The domain routes, which pages and workspaces have below their own paths (wire contract, section 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import MessageResponse, refused
from common.request_origin import request_origin
from common.requests import validated
from common.responses import respond
from domains import selectors, serializers, services
from domains.check import check_domain
from domains.models import shown_name
from domains.services import Target
from domains.throttles import DnsThrottle

REFUSALS = {
    400: "`domain_not_verified`: `details` is the body of the check; `validation_error`: the name cannot be connected",
    409: "`domain_taken` with `details.domain`; `domain_limit_exceeded` with `details.current` and `details.max`; "
    "`conflict`: it is being connected elsewhere at the same time",
    429: "`rate_limited`: 30 checks, connections and renewals a minute for an account",
}
NONE = {404: "`not_found`: also if no domain is connected"}
CONNECTED = {200: serializers.ConnectedDomainResponse, **refused(REFUSALS)}
CONNECT_TEXT = """Connect a domain, in place of the one that is connected now. Idempotent.

Before it, two records: a CNAME of the edge's name (or, for a domain without a label before it, its addresses), and the
TXT record that the check shows. The TXT record owns the name: it takes the domain from a page or workspace without one.
The domain is served at once, by plain HTTP until there is a certificate, then HTTP leads to https (308). A TXT record
that is removed changes nothing until another target is proven by its own."""


class DomainViewSet(ViewSet):
    """The custom domain of one target."""

    request_serializer: type[serializers.ConnectDomainRequest] = serializers.ConnectDomainRequest

    def target_of(self, request: ApiRequest, **path: str) -> Target:
        """Return the target that the path names, within the reach of the actor. Raise NotFound."""
        raise NotImplementedError

    def check_target(self, target: Target) -> None:
        """Raise DomainError if no domain can lead to it."""

    def get_throttles(self) -> list[BaseThrottle]:
        return [DnsThrottle()] if self.action in ("create", "check", "renew") else []

    def create(self, request: ApiRequest, **path: str) -> Response:
        target = self.target_of(request, **path)
        data = validated(self.request_serializer, request)
        target = replace(target, port=data.get("port"))
        self.check_target(target)
        named = {"name": data["domain"], "include_www": data["include_www"]}
        domain = services.domain_connect(target=target, **named, **_by(request))
        return respond(serializers.ConnectedDomainResponse, **serializers.connected_fields(domain))

    @extend_schema(responses=serializers.DomainResponse)
    def retrieve(self, request: ApiRequest, **path: str) -> Response:
        """The connected domain; null if there is none."""
        target = self.target_of(request, **path)
        return respond(serializers.DomainResponse, domain=selectors.target_domain(target.kind, target.id))

    @extend_schema(responses={200: MessageResponse, **refused(NONE)})
    def destroy(self, request: ApiRequest, **path: str) -> Response:
        """Disconnect the domain: it is not served any more, and its certificates are removed."""
        target = self.target_of(request, **path)
        domain = selectors.get_target_domain(target.kind, target.id)
        services.domain_disconnect(domain=domain, **_by(request))
        return respond(MessageResponse, message=f"{domain.shown_name} is disconnected.")

    @extend_schema(
        request=serializers.CheckDomainRequest,
        responses={200: serializers.DomainCheckResponse, **refused({429: REFUSALS[429]})},
    )
    def check(self, request: ApiRequest, **path: str) -> Response:
        """Look up the DNS records of a domain, without any effect. Takes up to some ten seconds if name servers are
        slow. `verified`: it can be connected now.
        """
        target = self.target_of(request, **path)
        data = validated(serializers.CheckDomainRequest, request)
        found = check_domain(data["domain"], target.id, include_www=data["include_www"])
        return respond(serializers.DomainCheckResponse, **_check_fields(found))

    @extend_schema(
        request=None,
        responses={
            200: serializers.RenewedCertificateResponse,
            **refused({**NONE, 409: "`renewal_in_progress`; `conflict`: another target has the domain"}),
            **refused({429: f"{REFUSALS[429]}; or the limit of orders of the platform or of the CA"}),
        },
    )
    def renew(self, request: ApiRequest, **path: str) -> Response:
        """Order new certificates now. The present ones are served until the new ones are there."""
        target = self.target_of(request, **path)
        domain = selectors.get_target_domain(target.kind, target.id)
        services.certificates_renew(domain=domain, **_by(request))
        fields = serializers.connected_fields(domain)
        del fields["url"]
        return respond(serializers.RenewedCertificateResponse, **fields)


def _check_fields(found: Any) -> dict[str, Any]:
    return {
        "domain": shown_name(found.domain),
        "verified": found.verified,
        "cname": found.cname,
        "ownership": found.ownership,
        "errors": found.errors,
    }


def _by(request: ApiRequest) -> dict[str, Any]:
    """Return the actor and origin for the audit entry."""
    return {"actor": request.user.label, "origin": request_origin(request._request)}
