"""Views of `/pages`."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from common.openapi import MessageResponse, refused
from common.request_origin import request_origin
from common.requests import validated
from common.responses import respond
from edge.addresses import default_domain, page_url
from pages import publication, selectors, serializers, services
from pages.deploys import requests
from pages.deploys.creations import slug_available
from pages.models import Page
from workspaces.files.paths import checked_path
from workspaces.requested import requested_workspace

CHANGED = {200: serializers.PageResponse, 202: serializers.PageResponse}
IN_PROGRESS = "`operation_in_progress`: a deploy is under way"
DEPLOY_REFUSALS = {
    400: "`validation_error`: also if the folder contains no file that can be served",
    402: "`quota_exceeded`: the credits of the namespace are used up (`details.quota_used`, `details.held`, "
    "`details.quota_limit`; each deploy holds its price until it has ended), or the account's releases take as much "
    "space as they may (`details.current`, `details.max`)",
    403: "`namespace_suspended`",
    404: "`not_found`: there is no such workspace; `path_not_found`: there is no such folder",
    413: "`payload_too_large`: the folder passed a limit. `details` has `limit`, `max` and the `path` that passed it",
    503: "`VM_UNAVAILABLE`: the workspace does not answer, or the export failed (`details.reason`)",
}


class PageViewSet(ViewSet):
    """Sites of static files, exported from a workspace and served without one; account or namespace scope.

    A page belongs to the namespace of the workspace that it was created from, and outlives the workspace.
    """

    scopes = NAMESPACE_SCOPES

    @extend_schema(responses=serializers.PagesResponse)
    def list(self, request: ApiRequest) -> Response:
        """List all pages in the scope of the credential, newest first."""
        return respond(serializers.PagesResponse, pages=list(selectors.visible_pages(request.user)))

    @extend_schema(
        request=serializers.CreatePageRequest,
        responses={
            201: serializers.DeployedPageResponse,
            202: serializers.DeployedPageResponse,
            **refused({**DEPLOY_REFUSALS, 409: "`slug_taken` with `details.slug`; `vm_not_running`"}),
        },
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a page from a folder in a running workspace, and wait until it is served.

        If the deploy takes longer than the wait, the answer is 202 with the page as it is; `deployment` shows its
        outcome later. A creation that fails within the wait leaves no page. The deploy goes on if the client
        disconnects. A link to a file or folder inside becomes the file or folder that it names. Links that leave the
        folder, devices, sockets and hidden files (except `.well-known`) are left out and listed in `skipped`.
        """
        data = validated(serializers.CreatePageRequest, request)
        path = checked_path(data["path"])
        workspace = requested_workspace(request.user, data["workspace_id"], whole=True)
        new = requests.NewPage(workspace, path, data.get("name"), data.get("slug"), data.get("domain"))
        page, deploy = requests.page_create(actor=request.user, new=new, origin=request_origin(request._request))
        ended = requests.wait_for_first_deploy(page, deploy, page.account_id)
        return _deployed(request, page, 201 if ended else 202)

    @extend_schema(responses=serializers.PageResponse)
    def retrieve(self, request: ApiRequest, page: str) -> Response:
        """Return one page by its slug."""
        return respond(serializers.PageResponse, page=selectors.get_page(request.user, page))

    @extend_schema(request=serializers.UpdatePageRequest, responses={**CHANGED, **refused({409: "`slug_taken`"})})
    def update(self, request: ApiRequest, page: str) -> Response:
        """Change the name or the slug. With a new slug the page is served at its new address at once. The old address
        ends, and others may take it. Idempotent.
        """
        found = selectors.get_page(request.user, page)
        data = validated(serializers.UpdatePageRequest, request)
        return _changed(services.page_update(page=found, **data, **_by(request)))

    @extend_schema(
        request=serializers.DeployPageRequest,
        responses={
            200: serializers.DeployedPageResponse,
            202: serializers.DeployedPageResponse,
            **refused({**DEPLOY_REFUSALS, 409: f"{IN_PROGRESS}; `vm_not_running`"}),
        },
    )
    def deploy(self, request: ApiRequest, page: str) -> Response:
        """Replace the files by those of a folder in a running workspace, and wait until they are served.

        Without `workspace_id` or `path`, those of the live release are used. The live release is served until the new
        one is complete, and stays if the deploy fails. If the deploy takes longer than the wait, the answer is 202. The
        deploy goes on if the client disconnects.
        """
        found = selectors.get_page(request.user, page)
        data = validated(serializers.DeployPageRequest, request)
        path = checked_path(data.get("path", found.exported_path))
        workspace = requested_workspace(request.user, data.get("workspace_id", found.source_workspace_id), whole=True)
        deploy = requests.page_deploy(page=found, workspace=workspace, path=path, **_by(request))
        ended = requests.wait_for_deploy(deploy, found.account_id)
        return _deployed(request, found, 200 if ended else 202)

    @extend_schema(request=None, responses={**CHANGED, **refused({403: "`page_disabled`: disabled by the operators"})})
    def enable(self, request: ApiRequest, page: str) -> Response:
        """Serve a disabled page again. Idempotent. A page that the operators of the platform have disabled stays
        disabled.
        """
        found = selectors.get_page(request.user, page)
        return _changed(services.page_enable(page=found, **_by(request)))

    @extend_schema(request=None, responses=CHANGED)
    def disable(self, request: ApiRequest, page: str) -> Response:
        """Stop serving a page; it keeps its releases and its slug. Idempotent."""
        found = selectors.get_page(request.user, page)
        return _changed(services.page_disable(page=found, **_by(request)))

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, page: str) -> Response:
        """Delete a page with all its releases. A deploy that is under way ends without effect."""
        found = selectors.get_page(request.user, page)
        publication.remove_files(services.page_delete(page=found, **_by(request)))
        return respond(MessageResponse, message="The page and its files were removed.")

    @extend_schema(responses=serializers.ReleasesResponse)
    def releases(self, request: ApiRequest, page: str) -> Response:
        """List the kept releases, newest first; `live` marks the one that is served."""
        found = selectors.get_page(request.user, page)
        rows = list(selectors.releases_of(found))
        for row in rows:
            row.page = found
        return respond(serializers.ReleasesResponse, releases=rows)

    @extend_schema(
        request=serializers.RollbackRequest,
        responses={**CHANGED, **refused({404: "`not_found`: the release is not kept", 409: IN_PROGRESS})},
    )
    def rollback(self, request: ApiRequest, page: str) -> Response:
        """Serve a kept release, older or newer than the live one. Idempotent."""
        found = selectors.get_page(request.user, page)
        number = validated(serializers.RollbackRequest, request)["release"]
        return _changed(services.page_rollback(page=found, number=number, **_by(request)))


class SlugViewSet(ViewSet):
    """Slugs of pages; account or namespace scope."""

    scopes = NAMESPACE_SCOPES

    @extend_schema(request=serializers.CheckSlugRequest, responses=serializers.CheckSlugResponse)
    def check(self, request: ApiRequest) -> Response:
        """Check whether a page may take a slug. A slug belongs to one page, whatever its domain. A slug that no page
        may have is refused.
        """
        data = validated(serializers.CheckSlugRequest, request)
        domain = data.get("domain") or default_domain(settings.ENV.pages_url)
        return respond(
            serializers.CheckSlugResponse,
            available=slug_available(request.user.account, data["slug"]),
            url=page_url(settings.ENV.pages_url, domain, data["slug"]),
        )


def _by(request: ApiRequest) -> dict[str, Any]:
    """Return who does it, for the audit entry."""
    return {"actor": request.user.label, "origin": request_origin(request._request)}


def _changed(page: Page) -> Response:
    """Return the page once its files follow its row; 202 if they cannot now."""
    return respond(serializers.PageResponse, 200 if publication.publish_page(page) else 202, page=page)


def _deployed(request: ApiRequest, page: Page, status: int) -> Response:
    """Return the page; if the deploy has ended, with the entries left out of the folder. Raise NotFound if it was
    deleted.
    """
    current = selectors.current_page(request.user, page)
    if status == 202:
        return respond(serializers.DeployedPageResponse, 202, page=current)
    live = selectors.live_release(current)
    skipped, count = (live.skipped, live.skipped_count) if live else ([], 0)
    return respond(serializers.DeployedPageResponse, status, page=current, skipped=skipped, skipped_count=count)
