"""Bodies of the page routes."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers as s

from common.fields import StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import ResponseSerializer, Timestamp
from common.spellings import WorkspaceIdRequest
from domains.models import TargetKind, shown_name
from domains.selectors import target_domain
from edge.addresses import page_addresses, page_url
from pages import slugs
from pages.models import NAME_LENGTH, Page, PageRelease
from pages.states import DeploymentState, PageStatus

_SPELLED = "`workspaceId` is accepted too."
_SLUG = f"A label of the page's address, unique over all accounts: {slugs.RULE}."


class PageSlug(StrictChar):
    """Slug that a caller may choose."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not slugs.is_slug(text):
            raise s.ValidationError(f"A slug has {slugs.RULE}.")
        return text


class PageDomain(StrictChar):
    """Domain of PLATFORM_PAGES_URL."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data).lower().removesuffix(".")
        known = page_addresses(settings.ENV.pages_url)
        if text not in known:
            raise s.ValidationError(f"The domains of pages are: {', '.join(known)}.")
        return text


class CreatePageRequest(WorkspaceIdRequest):
    workspace_id = StrictChar(max_length=128, help_text=f"Id or slug of a workspace, which must be running. {_SPELLED}")
    path = StrictChar(trim_whitespace=False, help_text="Absolute path of the folder whose files are exported.")
    name = StrictChar(max_length=NAME_LENGTH, required=False, help_text="Default: the name of the workspace.")
    slug = PageSlug(required=False, help_text=f"{_SLUG} Default: made from the name.")
    domain = PageDomain(required=False, help_text="One of the domains of this installation; default: its first.")


class CheckSlugRequest(s.Serializer[Any]):
    slug = PageSlug(help_text=_SLUG)
    domain = PageDomain(required=False, help_text="One of the domains of this installation; default: its first.")


class CheckSlugResponse(Success):
    available = s.BooleanField(help_text="The slug is not reserved: another page may take it first.")
    url = s.CharField(help_text="The address that a page with this slug has, or would have.")


class DeployPageRequest(WorkspaceIdRequest):
    workspace_id = StrictChar(
        max_length=128, required=False, help_text=f"Default: the workspace of the live release. {_SPELLED}"
    )
    path = StrictChar(trim_whitespace=False, required=False, help_text="Default: the path of the live release.")


class UpdatePageRequest(s.Serializer[Any]):
    name = StrictChar(max_length=NAME_LENGTH, required=False)
    slug = PageSlug(required=False, help_text=_SLUG)


class PageFailure(ResponseSerializer):
    code = s.CharField()
    message = s.CharField()


class DeploymentObject(ResponseSerializer):
    state = s.ChoiceField(DeploymentState.choices, source="deployment_state")
    error = PageFailure(allow_null=True, source="deployment_failure", help_text="Why it failed; null if it did not.")


class PageObject(ResponseSerializer):
    id = s.CharField(source="pk")
    name = s.CharField()
    slug = s.CharField()
    domain = s.CharField(help_text="The domain below which the page has its address.")
    url = s.CharField()
    status = s.ChoiceField(PageStatus.choices, help_text="`disabled`: the page is not served, and keeps its releases.")
    disabled_reason = s.CharField(
        allow_null=True,
        help_text="Why the operators of the platform have disabled the page; null if they have not. Only they can then "
        "enable it.",
    )
    namespace = s.CharField(source="namespace.slug")
    source_workspace_id = s.CharField(help_text="Workspace of the live release. It may be deleted by now.")
    exported_path = s.CharField(help_text="Exported path of the live release.")
    release = s.IntegerField(allow_null=True, help_text="The number of the live release; null until there is one.")
    deployment = DeploymentObject(source="*", help_text="The last deploy.")
    custom_domain = s.CharField(allow_null=True)
    created_at = Timestamp()
    updated_at = Timestamp()

    def read_disabled_reason(self, row: Page) -> str | None:
        return row.disabled_reason or None

    def read_url(self, row: Page) -> str:
        return page_url(settings.ENV.pages_url, row.domain, row.slug)

    def read_custom_domain(self, row: Page) -> str | None:
        """Return the page's domain. Lists bring the name along (`selectors.visible_pages`)."""
        if hasattr(row, "domain_name"):
            return shown_name(row.domain_name) if row.domain_name else None
        found = target_domain(TargetKind.PAGE, row.pk)
        return found.shown_name if found else None


class PageResponse(Success):
    page = PageObject()


class PagesResponse(Success):
    pages = PageObject(many=True)


class SkippedEntry(ResponseSerializer):
    path = s.CharField()
    reason = s.CharField()


class DeployedPageResponse(PageResponse):
    """Response to a deploy. With 202 the deploy goes on, and `skipped` is not known yet."""

    skipped = SkippedEntry(
        many=True, required=False, help_text="Entries that were left out of the folder; 100 at most."
    )
    skipped_count = s.IntegerField(required=False, help_text="How many entries were left out.")


class ReleaseObject(ResponseSerializer):
    release = s.IntegerField(source="number")
    live = s.BooleanField()
    files = s.IntegerField()
    bytes = s.IntegerField(help_text="Sum of the sizes of its files.")
    skipped = SkippedEntry(many=True)
    skipped_count = s.IntegerField()
    source_workspace_id = s.CharField()
    exported_path = s.CharField()
    created_at = Timestamp()

    def read_live(self, row: PageRelease) -> bool:
        return row.number == row.page.release


class ReleasesResponse(Success):
    releases = ReleaseObject(many=True)


class RollbackRequest(s.Serializer[Any]):
    release = StrictInteger(min_value=1, max_value=2**31 - 1, help_text="The number of a kept release.")
