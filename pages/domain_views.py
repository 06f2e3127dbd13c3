"""Views of `/pages/:slug/domain`."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from domains.models import TargetKind
from domains.serializers import ConnectDomainRequest
from domains.services import Target
from domains.views import CONNECT_TEXT, CONNECTED, DomainViewSet
from pages import selectors


class PageDomainViewSet(DomainViewSet):
    """Domain of the owner's under which a page is served; account or namespace scope.

    A disabled page keeps it, and a new slug does not change it.
    """

    scopes = NAMESPACE_SCOPES

    def target_of(self, request: ApiRequest, **path: str) -> Target:
        page = selectors.get_page(request.user, path["page"])
        return Target(TargetKind.PAGE, page.pk, page.account)

    @extend_schema(request=ConnectDomainRequest, responses=CONNECTED, description=CONNECT_TEXT)
    def create(self, request: ApiRequest, **path: str) -> Response:
        return super().create(request, **path)
