"""Pages and certificates."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest
from django.utils.safestring import SafeString

from certificates.models import Certificate, OrderAttempt
from console.panels.columns import AUDIT, DEPLOYS
from console.panels.workspace_network import domains_of
from domains.models import CustomDomain
from pages.models import Page, PageDeploy, PageEvent, PageRelease
from staff.parts.columns import badge, bytes_text, change_url, link, list_url, row_link, shortened, time_text
from staff.parts.pages import Panel, page, panel, table

PAGE, CERTIFICATE = "pages.Page", "certificates.Certificate"


def _badges(row: Page) -> list[SafeString]:
    return [badge(row.status), badge(f"last deploy: {row.deployment_state}")]


page(PAGE, "Overview", "Releases", "Deploys", "Activity", badges=_badges)


@panel(PAGE, "Overview")
def overview_panels(request: HttpRequest, row: Page) -> Iterator[Panel]:
    facts = [
        ("Account", row_link(row.account)),
        ("Namespace", row_link(row.namespace)),
        ("Host name", f"{row.slug}.{row.domain}"),
        ("Served as", row.published_slug or "not served"),
        *([("Disabled by staff", row.disabled_reason)] if row.disabled_reason else []),
        ("Files follow", "not yet" if row.is_stale else "yes"),
        ("Made of", link(row.source_workspace_id, change_url("workspaces.Workspace", row.source_workspace_id))),
        ("Release", row.release or "-"),
        ("Keeps", bytes_text(row.kept_bytes)),
        ("Created", time_text(row.created_at)),
    ]
    yield Panel("Page", facts)
    error = [("Code", row.deployment_error_code), ("Why", row.deployment_error)] if row.deployment_error_code else []
    yield Panel("Last deploy", [("State", badge(row.deployment_state)), *error])


@panel(PAGE, "Overview", "domains.view_customdomain")
def domains_panel(request: HttpRequest, row: Page) -> Panel:
    return domains_of(row.pk)


@panel(PAGE, "Releases", "pages.view_pagerelease")
def releases_panel(request: HttpRequest, row: Page) -> Panel:
    columns = (
        ("Release", lambda release: row_link(release, release.number)),
        ("Files", lambda release: release.files),
        ("Bytes", lambda release: bytes_text(release.bytes)),
        ("By", lambda release: shortened(release.actor, 30)),
        ("Made", lambda release: time_text(release.created_at)),
    )
    found = PageRelease.objects.filter(page=row).order_by("-number")
    return table("Releases", found, columns, more=list_url("pages.PageRelease", by_page=row.pk))


@panel(PAGE, "Deploys", "pages.view_pagedeploy")
def deploys_panel(request: HttpRequest, row: Page) -> Panel:
    found = PageDeploy.objects.filter(page=row).order_by("-id")
    return table("Deploys", found, DEPLOYS, more=list_url("pages.PageDeploy", by_page=row.pk))


@panel(PAGE, "Activity", "pages.view_pageevent")
def events_panel(request: HttpRequest, row: Page) -> Panel:
    found = PageEvent.objects.filter(page_id=row.pk).order_by("-created_at", "-id")
    return table("Who did what", found, AUDIT, more=list_url("pages.PageEvent", by_page_id=row.pk))


page(CERTIFICATE, "Overview", "Orders")


@panel(CERTIFICATE, "Overview")
def certificate_panels(request: HttpRequest, row: Certificate) -> Iterator[Panel]:
    served = [
        ("Valid from", time_text(row.not_before)),
        ("Expires", time_text(row.expires_at)),
        ("Issued by", row.issued_by or "-"),
        ("Announced to the edge", "yes" if row.announced else "no"),
        ("Wanted", "yes" if row.wanted else "no"),
        ("Owner", row.owner or "-"),
    ]
    yield Panel("Served", served)
    order = [
        ("Status", badge(row.status)),
        ("Why", row.error or "-"),
        ("Failures in a row", row.failures),
        ("Order under way since", time_text(row.order_began_at)),
        ("Next attempt", time_text(row.next_attempt_at)),
        ("Limited by the CA until", time_text(row.limited_until)),
    ]
    yield Panel("Next one", order)


@panel(CERTIFICATE, "Overview", "domains.view_customdomain")
def domain_panel(request: HttpRequest, row: Certificate) -> Panel:
    columns = (
        ("Domain", lambda domain: row_link(domain, domain.name)),
        ("Leads to", lambda domain: domain.target_id),
        ("Proven", lambda domain: time_text(domain.proven_at)),
    )
    return table("Domain", CustomDomain.objects.filter(name=row.name.removeprefix("www.")), columns)


@panel(CERTIFICATE, "Orders")
def orders_panel(request: HttpRequest, row: Certificate) -> Panel:
    columns = (("Began", lambda one: time_text(one.began_at)), ("Owner", lambda one: one.owner or "-"))
    found = OrderAttempt.objects.filter(name=row.name).order_by("-began_at")
    return table("Orders of the last hour", found, columns)
