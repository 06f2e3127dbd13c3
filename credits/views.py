"""Views of `/credits` and `/namespaces/:id/usage` (specification, Credit quotas; wire contract, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar, cast

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet, ViewSet

from accounts.authentication import ApiRequest
from accounts.scopes import Scope
from common.openapi import MessageResponse, refused
from common.pagination import OffsetPagination
from common.requests import validated, validated_query
from common.responses import respond
from credits import defaults, ledger, selectors
from credits import serializers as bodies
from credits.amounts import as_number
from credits.models import Balance, QuotaDefault, Spending
from namespaces.models import Namespace
from namespaces.selectors import get_namespace

WRITERS = frozenset({Scope.ACCOUNT, Scope.BILLING})
READERS = WRITERS | {Scope.NAMESPACE}

MANY_SERVICES = {409: "`service_limit_exceeded`: 100 services have quotas already"}
NO_DEFAULT = {404: "`not_found`: the service has no default"}


class QuotaPagination(OffsetPagination):
    """Pages of namespaces with their quotas, and the sums of all pages."""

    beside_schema: ClassVar[dict[str, Any]] = {
        "aggregations": {
            "type": "object",
            "properties": {"total_limit": {"type": "number"}, "total_used": {"type": "number"}},
        }
    }


class CreditsViewSet(GenericViewSet[Any]):
    """Quotas of namespaces by service, and their spending; account or billing scope, for reading also namespace
    scope.
    """

    scopes = WRITERS
    action_scopes = dict.fromkeys(("list", "retrieve", "usage"), READERS)
    queryset = Namespace.objects.all()
    serializer_class = bodies.NamespaceQuotas
    pagination_class = QuotaPagination

    @extend_schema(
        request=bodies.SetQuotaRequest, responses={200: bodies.NamespaceQuotaResponse, **refused(MANY_SERVICES)}
    )
    def set_quota(self, request: ApiRequest) -> Response:
        """Set the quota of a namespace for a service, and re-arm its thresholds. Used credits stay."""
        data = validated(bodies.SetQuotaRequest, request)
        namespace = get_namespace(request.user, data["namespace"])
        balance = ledger.quota_set(
            namespace=namespace,
            service=data["service"],
            limit=data["quotaLimit"],
            overdraft=data["overdraft"],
            action=data["onOverdraftAction"],
            thresholds=data["notificationThresholds"],
        )
        return respond(bodies.NamespaceQuotaResponse, data=bodies.quota_record(balance, namespace.slug))

    @extend_schema(
        request=bodies.QuotaNameRequest,
        responses={
            200: bodies.NamespaceQuotaResponse,
            **refused({404: "`not_found`: there is no such namespace, or it has no quota for the service"}),
        },
    )
    def reset_quota(self, request: ApiRequest) -> Response:
        """Set the used credits of a service to zero and re-arm the thresholds. Idempotent."""
        data = validated(bodies.QuotaNameRequest, request)
        namespace, service = get_namespace(request.user, data["namespace"]), data["service"]
        balance = ledger.quota_reset(
            namespace=namespace, service=service, actor=request.user.label, quota_required=True
        )
        return respond(bodies.NamespaceQuotaResponse, data=bodies.quota_record(balance, namespace.slug))

    @extend_schema(parameters=[bodies.ListQuotasQuery])
    def list(self, request: ApiRequest) -> Response:
        """List namespaces with their quotas. The sums are those of all pages."""
        query = validated_query(bodies.ListQuotasQuery, request)
        rows = selectors.namespaces_with_quotas(request.user, **query)
        page = self.paginate_queryset(rows) or []
        quotas = selectors.quotas_of(page)
        shown = [_with_quotas(namespace, quotas[namespace.pk]) for namespace in page]
        sums = {name: as_number(value) for name, value in selectors.quota_sums(rows).items()}
        paginator = cast(QuotaPagination, self.paginator)
        rows_shown = [bodies.NamespaceQuotas(each).data for each in shown]
        return paginator.get_paginated_response(rows_shown, aggregations=sums)

    @extend_schema(parameters=[bodies.DetailQuery], responses=bodies.NamespaceCreditsResponse)
    def retrieve(self, request: ApiRequest, namespace: str) -> Response:
        """Return quotas, spending by service and by UTC day, and the newest 50 entries of the ledger."""
        found = get_namespace(request.user, namespace)
        days = validated_query(bodies.DetailQuery, request)["days"]
        spending = selectors.spending_of(found, days=days)
        detail = {
            **_with_quotas(found, selectors.quotas_of([found])[found.pk]),
            **_spent(spending),
            "transactions": selectors.recent_entries(found),
        }
        return respond(bodies.NamespaceCreditsResponse, data=detail)

    @extend_schema(parameters=[bodies.UsageQuery], responses=bodies.NamespaceUsageResponse)
    def usage(self, request: ApiRequest, namespace_id: str) -> Response:
        """Return the spending of a namespace by UTC day and service, oldest first."""
        found = get_namespace(request.user, namespace_id)
        query = validated_query(bodies.UsageQuery, request)
        spending = selectors.spending_of(found, days=query["days"], service=query.get("service", ""))
        shown = {
            "usage": [_usage_item(row) for row in spending],
            "summary": [
                {"service": row["service"], "total_requests": row["requests"], "total_credits": row["credits"]}
                for row in selectors.summary_of(spending)
            ],
            "quotas": _records(found, selectors.quotas_of([found])[found.pk]),
        }
        return respond(bodies.NamespaceUsageResponse, data=shown)


def _records(namespace: Namespace, quotas: Sequence[Balance]) -> list[dict[str, Any]]:
    return [bodies.quota_record(balance, namespace.slug) for balance in quotas]


def _with_quotas(namespace: Namespace, quotas: Sequence[Balance]) -> dict[str, Any]:
    return {"namespace": namespace.slug, "status": namespace.status, "quotas": _records(namespace, quotas)}


def _usage_item(row: Spending) -> dict[str, Any]:
    return {
        "date": row.day.isoformat(),
        "service": row.balance.service,
        "total_requests": row.requests,
        "total_credits": row.credits,
    }


def _spent(spending: Sequence[Spending]) -> dict[str, Any]:
    summary = selectors.summary_of(spending)
    total = sum((row["credits"] for row in summary), Decimal(0))
    for row in summary:
        row["percent"] = round(float(row["credits"] * 100 / total), 2) if total else 0.0
    requests = sum(row["requests"] for row in summary)
    return {
        "usage": {"total_requests": requests, "total_credits": total},
        "services": summary,
        "timeline": selectors.timeline_of(spending),
    }


class QuotaDefaultViewSet(ViewSet):
    """Quotas that each namespace gets for a service when it first spends there; account or billing scope."""

    scopes = WRITERS

    @extend_schema(
        request=bodies.SetDefaultRequest, responses={200: bodies.QuotaDefaultResponse, **refused(MANY_SERVICES)}
    )
    def create(self, request: ApiRequest) -> Response:
        """Set the default quota of a service, with the overdraft, action and thresholds of the quotas that are made
        from it. Existing quotas do not change.
        """
        data = validated(bodies.SetDefaultRequest, request)
        found = defaults.default_set(
            account=request.user.account,
            service=data["service"],
            limit=data["quotaLimit"],
            overdraft=data["overdraft"],
            action=data["onOverdraftAction"],
            thresholds=data["notificationThresholds"],
            auto_apply=data["autoApply"],
        )
        return respond(bodies.QuotaDefaultResponse, data=found)

    @extend_schema(
        parameters=[bodies.DefaultNameRequest],
        responses={200: bodies.QuotaDefaultResponse, **refused(NO_DEFAULT)},
    )
    def retrieve(self, request: ApiRequest) -> Response:
        """Return the default quota of one service."""
        query = validated_query(bodies.DefaultNameRequest, request)
        return respond(bodies.QuotaDefaultResponse, data=defaults.default_get(request.user.account, query["service"]))

    @extend_schema(parameters=[bodies.LevelQuery], responses=bodies.QuotaDefaultListResponse)
    def list_all(self, request: ApiRequest) -> Response:
        """List the default quotas of all services."""
        validated_query(bodies.LevelQuery, request)
        rows = QuotaDefault.objects.filter(account_id=request.user.account.pk).order_by("service")
        return respond(bodies.QuotaDefaultListResponse, data=rows)

    @extend_schema(
        parameters=[bodies.DefaultNameRequest],
        request=None,
        responses={
            200: MessageResponse,
            **refused(NO_DEFAULT | {415: "`unsupported_media_type`: a body of another type than application/json"}),
        },
    )
    def destroy(self, request: ApiRequest) -> Response:
        """Delete the default quota that the body or the query names. Quotas that were made from it stay."""
        data = _named_default(request)
        defaults.default_delete(account=request.user.account, service=data["service"])
        return respond(MessageResponse, message="The default quota was deleted.")

    @extend_schema(
        request=bodies.DefaultNameRequest,
        responses={200: bodies.QuotaDefaultResponse, **refused(NO_DEFAULT)},
    )
    def toggle_auto_apply(self, request: ApiRequest) -> Response:
        """Switch whether namespaces without a quota get the default quota."""
        data = validated(bodies.DefaultNameRequest, request)
        found = defaults.default_toggle(account=request.user.account, service=data["service"])
        return respond(bodies.QuotaDefaultResponse, data=found)


def _named_default(request: ApiRequest) -> dict[str, Any]:
    if request.data:
        return validated(bodies.DefaultNameRequest, request)
    return validated_query(bodies.DefaultNameRequest, request)
