"""Views of `/cdn`: limits and usage (specification, CDN quota routes)."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet, ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import ACCOUNT_ONLY, NAMESPACE_SCOPES
from accounts.scopes import Scope
from cdn import serializers as bodies
from cdn.limit_objects import namespace_body, namespace_quota_body, policy_body, quota_body, usage_body
from cdn.pagination import NamespacesPagination
from cdn.policy import effective_policy, template_layer
from cdn.selectors import listed_namespaces, part_of, uses_of
from cdn.services import limits
from common.openapi import refused
from common.request_origin import request_origin
from common.requests import validated, validated_query
from common.responses import respond
from namespaces.models import Namespace
from namespaces.selectors import by_slug, require_own_namespace
from namespaces.serializers import NAMESPACE_GONE

USAGE_SCOPES = NAMESPACE_SCOPES | {Scope.BILLING}


class QuotaDefaultsViewSet(ViewSet):
    """Template of limits, which each namespace of the account inherits; account scope, for reading also namespace
    scope.
    """

    scopes = ACCOUNT_ONLY
    action_scopes: ClassVar[dict[str, Any]] = {"retrieve": NAMESPACE_SCOPES}

    @extend_schema(responses={200: bodies.CdnQuotaResponse, **refused(NAMESPACE_GONE)})
    def retrieve(self, request: ApiRequest) -> Response:
        """Return the account's template of limits, as it was set. Null means the plan's limit."""
        require_own_namespace(request.user)
        return respond(bodies.CdnQuotaResponse, data=quota_body(template_layer(request.user.account.pk)))

    @extend_schema(request=bodies.QuotaRequest, responses=bodies.CdnQuotaResponse)
    def update(self, request: ApiRequest) -> Response:
        """Change the account's template of limits. Fields that are left out do not change, also inside of `policy`.
        Null inherits the plan's limit; `policy` null removes all its fields. Zero means zero. A value above the plan's
        is kept, and the plan's value applies.
        """
        layer = limits.template_set(
            account=request.user.account,
            changes=validated(bodies.QuotaRequest, request),
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        return respond(bodies.CdnQuotaResponse, data=quota_body(layer))


class CdnNamespaceViewSet(GenericViewSet[Any]):
    """Limits and counters by namespace; account scope, for reading also namespace scope."""

    scopes = ACCOUNT_ONLY
    action_scopes: ClassVar[dict[str, Any]] = {"list": NAMESPACE_SCOPES}
    queryset = Namespace.objects.all()
    serializer_class = bodies.CdnNamespaceObject
    pagination_class = NamespacesPagination

    @extend_schema(
        parameters=[bodies.CdnNamespacesQuery], responses={200: bodies.CdnNamespaceObject, **refused(NAMESPACE_GONE)}
    )
    def list(self, request: ApiRequest) -> Response:
        """List the account's namespaces, or the credential's own, newest first, with the template."""
        query = validated_query(bodies.CdnNamespacesQuery, request)
        require_own_namespace(request.user)
        page = self.paginate_queryset(listed_namespaces(request.user, query.get("search", ""))) or []
        shown = [namespace_body(use) for use in uses_of(request.user, page)]
        defaults = quota_body(template_layer(request.user.account.pk))
        rows = [bodies.CdnNamespaceObject(each).data for each in shown]
        return cast(NamespacesPagination, self.paginator).get_paginated_response(rows, defaults=defaults)

    @extend_schema(request=bodies.NamespaceQuotaRequest, responses=bodies.CdnNamespaceQuotaResponse)
    def set_quota(self, request: ApiRequest) -> Response:
        """Change the limits of a namespace. Fields that are left out do not change, also inside of `policy`. Null
        inherits the template's limit. Zero means zero. Limits of a namespace narrow those of the account; the account's
        shared pool never grows by them.
        """
        changes = dict(validated(bodies.NamespaceQuotaRequest, request))
        namespace = by_slug(request.user.account, changes.pop("namespace"))
        layer = limits.namespace_quota_set(
            namespace=namespace,
            changes=changes,
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        return respond(bodies.CdnNamespaceQuotaResponse, data=namespace_quota_body(namespace.slug, layer))


class CdnUsageViewSet(ViewSet):
    """Limits in force, and usage; account or namespace scope, for usage also billing scope."""

    scopes = USAGE_SCOPES
    action_scopes: ClassVar[dict[str, Any]] = {"policy": NAMESPACE_SCOPES}

    @extend_schema(parameters=[bodies.CdnPolicyQuery], responses=bodies.CdnPolicyResponse)
    def policy(self, request: ApiRequest) -> Response:
        """Return the limits in force for a namespace, or for files without one, and where each comes from.

        Files without a namespace have the plan's limits: only namespaces inherit the template.
        """
        query = validated_query(bodies.CdnPolicyQuery, request)
        part = part_of(request.user, query.get("namespace"))
        policy = effective_policy(request.user.account, part.namespace)
        slug = part.namespace.slug if part.namespace else None
        return respond(bodies.CdnPolicyResponse, data=policy_body(slug, policy))

    @extend_schema(parameters=[bodies.CdnPartQuery], responses=bodies.CdnUsageResponse)
    def usage(self, request: ApiRequest) -> Response:
        """Return counters of bytes and files of a namespace, of files without one (`scope=personal`), or of the
        account.
        """
        query = validated_query(bodies.CdnPartQuery, request)
        part = part_of(request.user, query.get("namespace"), personal="scope" in query)
        policy = effective_policy(request.user.account, part.namespace)
        return respond(bodies.CdnUsageResponse, data=usage_body(part, part.pool, policy))
