"""`/namespaces/:id/usage-units` (specification, Namespaces)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.scopes import Scope
from common.openapi import refused
from common.requests import validated_query
from common.responses import respond
from common.times import EPOCH
from namespaces.selectors import get_namespace
from workspaces.charging import serializers as bodies
from workspaces.charging.selectors import usage_units


class UsageUnitsViewSet(ViewSet):
    """Usage of a namespace's workspaces, as it was charged; account, namespace or billing scope."""

    scopes = frozenset({Scope.ACCOUNT, Scope.NAMESPACE, Scope.BILLING})

    @extend_schema(
        parameters=[bodies.UnitsQuery],
        responses={200: bodies.UsageUnitsResponse, **refused({400: "`validation_error`"})},
    )
    def list(self, request: ApiRequest, namespace_id: str) -> Response:
        """Return raw usage units by hour or day of UTC; the end of the range is excluded.

        The response for a range that ended ten minutes ago never changes. Usage that was metered late counts at the
        time at which it was charged.
        """
        namespace = get_namespace(request.user, namespace_id)
        query = validated_query(bodies.UnitsQuery, request)
        begin, end = (bodies.in_microseconds(query[name], EPOCH) for name in ("from", "to"))
        buckets, totals = usage_units(namespace.pk, begin, end, by_day=query["groupBy"] == "day")
        found = {
            "namespace": namespace.slug,
            "range": {"from": query["from"], "to": query["to"]},
            "group_by": query["groupBy"],
            "buckets": buckets,
            "totals": totals,
        }
        return respond(bodies.UsageUnitsResponse, data=found, **found)
