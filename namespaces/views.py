"""`/namespaces` (specification, Namespaces)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import ACCOUNT_ONLY, NAMESPACE_SCOPES
from common.openapi import refused
from common.pagination import OffsetPagination, RowsPagination
from common.request_origin import request_origin
from common.requests import validated, validated_query
from common.responses import respond
from namespaces import selectors, services
from namespaces import serializers as bodies
from namespaces.models import Namespace, Status

REFUSED = {
    400: "`validation_error`: also if no valid slug can be made from the name; `plan_limit_exceeded`: a limit above "
    "the plan's",
}
LIMIT = "`namespace_limit_exceeded`: more than 100"
EXISTS = f"`namespace_exists`: the slug is taken; {LIMIT}"
DEFAULT = "`conflict`: it is the default namespace"


class NamespaceViewSet(GenericViewSet[Any]):
    """Groups of workspaces with limits and a status of their own. Addressed by id or slug."""

    scopes = ACCOUNT_ONLY
    action_scopes = dict.fromkeys(("list", "retrieve", "stop_workspaces"), NAMESPACE_SCOPES)
    queryset = Namespace.objects.all()
    serializer_class = bodies.NamespaceObject
    pagination_class = OffsetPagination

    @extend_schema(parameters=[bodies.ListNamespacesQuery])
    def list(self, request: ApiRequest) -> Response:
        """List the account's namespaces, or the one that the credential is bound to."""
        query = validated_query(bodies.ListNamespacesQuery, request)
        sort, descending = query.pop("sortBy"), query.pop("sortOrder") == "DESC"
        rows = selectors.listed_namespaces(request.user, sort=sort, descending=descending, **query)
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(bodies.NamespaceObject(page, many=True).data)

    @extend_schema(
        request=bodies.CreateNamespaceRequest,
        responses={201: bodies.NamespaceResponse, **refused({**REFUSED, 409: EXISTS})},
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a namespace. If the slug is left out, it is made from the name."""
        checked = bodies.CreateNamespaceRequest(data=request.data)
        checked.is_valid(raise_exception=True)
        made = services.namespace_create(
            account=request.user.account,
            new=checked.new_namespace(),
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        return respond(bodies.NamespaceResponse, 201, data=made)

    @extend_schema(
        request=bodies.EnsureNamespaceRequest,
        responses={
            200: bodies.EnsuredNamespaceResponse,
            201: bodies.EnsuredNamespaceResponse,
            **refused({**REFUSED, 409: f"{LIMIT}; `conflict`: a suspended one cannot become the default one"}),
        },
    )
    def ensure(self, request: ApiRequest) -> Response:
        """Return the namespace with this slug; if there is none, create it: 201 and `created` true. Idempotent.

        An existing namespace stays as it is, but with `isDefault` it becomes the default one.
        """
        checked = bodies.EnsureNamespaceRequest(data=request.data)
        checked.is_valid(raise_exception=True)
        found, created = services.namespace_ensure(
            account=request.user.account,
            new=checked.new_namespace(),
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        return respond(bodies.EnsuredNamespaceResponse, 201 if created else 200, data=found, created=created)

    @extend_schema(responses=bodies.NamespaceResponse)
    def retrieve(self, request: ApiRequest, namespace_id: str) -> Response:
        """Return one namespace."""
        return respond(bodies.NamespaceResponse, data=selectors.get_namespace(request.user, namespace_id))

    @extend_schema(
        request=bodies.UpdateNamespaceRequest,
        responses={
            200: bodies.NamespaceResponse,
            **refused(
                {
                    **REFUSED,
                    409: f"{DEFAULT}, or would become it while suspended; `invalid_state`: `inactive` while suspended",
                }
            ),
        },
    )
    def update(self, request: ApiRequest, namespace_id: str) -> Response:
        """Change the given fields. `status` `suspended` and `active` do what suspend and activate do.

        A `status` equal to the present one changes nothing, so that a client may write back what it read. To suspend by
        hand a namespace that a quota has suspended, use the suspend route.
        """
        namespace = selectors.get_namespace(request.user, namespace_id)
        changes = validated(bodies.UpdateNamespaceRequest, request)
        status, is_default = changes.pop("status", None), changes.pop("isDefault", None)
        changed = services.namespace_update(
            namespace=namespace,
            changes=changes,
            status=Status(status) if status else None,
            is_default=is_default,
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        return respond(bodies.NamespaceResponse, data=changed)

    @extend_schema(
        request=None,
        parameters=[bodies.DeleteNamespaceQuery],
        responses={
            200: bodies.DeletedNamespaceResponse,
            **refused({409: DEFAULT, 415: "`unsupported_media_type`: a body of another type than application/json"}),
        },
    )
    def destroy(self, request: ApiRequest, namespace_id: str) -> Response:
        """Delete a namespace, and either move its workspaces to the default one or destroy them with all their data.

        `deleteWorkspaces` is read from a JSON body, or from the query if there is no body.

        Destroying continues after the response: the namespace is gone at once, its workspaces within seconds.
        """
        namespace = selectors.get_namespace(request.user, namespace_id)
        if request.data:
            destroy = validated(bodies.DeleteNamespaceRequest, request)["deleteWorkspaces"]
        else:
            destroy = validated_query(bodies.DeleteNamespaceQuery, request)["deleteWorkspaces"]
        count = services.namespace_delete(
            namespace=namespace,
            delete_workspaces=destroy,
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        counted = {"deletedWorkspaces" if destroy else "movedWorkspaces": count}
        return respond(bodies.DeletedNamespaceResponse, message="The namespace was deleted.", **counted)

    @extend_schema(request=None, responses={200: bodies.StoppedWorkspacesResponse, **refused({409: DEFAULT})})
    def suspend(self, request: ApiRequest, namespace_id: str) -> Response:
        """Suspend by hand: every machine in it is stopped, and nothing is created or started. Idempotent.

        At most 200 suspensions and restorations that an account's requests cause in a minute are sent to its webhooks.
        If one of its webhooks subscribes to these events, the next request is refused with 429.
        """
        _, stopped = services.namespace_suspend(
            namespace=selectors.get_namespace(request.user, namespace_id),
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        message = "The namespace is suspended; its machines are being stopped."
        return respond(bodies.StoppedWorkspacesResponse, message=message, stoppedWorkspaces=stopped)

    @extend_schema(request=None, responses=bodies.ActivatedNamespaceResponse)
    def activate(self, request: ApiRequest, namespace_id: str) -> Response:
        """End a suspension by hand. Workspaces are not started again.

        A namespace that a quota has suspended stays `suspended` until the quota is reset or raised.
        """
        activated = services.namespace_activate(
            namespace=selectors.get_namespace(request.user, namespace_id),
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        by_quota = activated.status == Status.SUSPENDED
        message = "Still suspended by a quota." if by_quota else "The namespace is active."
        return respond(bodies.ActivatedNamespaceResponse, data=activated, message=message)

    @extend_schema(request=None, responses=bodies.StoppedWorkspacesResponse)
    def stop_workspaces(self, request: ApiRequest, namespace_id: str) -> Response:
        """Stop every machine that runs in it; the status stays. Idempotent."""
        stopped = services.namespace_stop_workspaces(
            namespace=selectors.get_namespace(request.user, namespace_id),
            actor=request.user.label,
            origin=request_origin(request._request),
        )
        message = "The machines of the namespace are being stopped."
        return respond(bodies.StoppedWorkspacesResponse, message=message, stoppedWorkspaces=stopped)


class NamespaceActivityViewSet(GenericViewSet[Any]):
    """Activity of a namespace: who changed it, when, and from which address."""

    scopes = NAMESPACE_SCOPES
    queryset = Namespace.objects.all()
    serializer_class = bodies.NamespaceActivityObject
    pagination_class = RowsPagination

    def list(self, request: ApiRequest, namespace_id: str) -> Response:
        """List the activity of a namespace, newest first."""
        namespace = selectors.get_namespace(request.user, namespace_id)
        page = self.paginate_queryset(selectors.activity_of(namespace))
        return self.get_paginated_response(bodies.NamespaceActivityObject(page, many=True).data)
