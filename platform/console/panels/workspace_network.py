"""The network part of a workspace's page."""

from __future__ import annotations

from django.http import HttpRequest

from domains.models import CustomDomain
from pages.models import Page
from staff.parts.columns import list_url, row_link, time_text
from staff.parts.pages import Panel, panel, table
from workspaces.models import PortLink, PublicPort, Workspace

WORKSPACE = "workspaces.Workspace"


@panel(WORKSPACE, "Network")
def network_panel(request: HttpRequest, row: Workspace) -> Panel:
    facts = [
        ("Address", row.ip or "-"),
        ("Reaches the internet", "yes" if row.allow_internet else "no"),
        ("Allowed outside", _listed(row.egress, "everything")),
        ("Ports outside", _listed(row.egress_ports, "every one")),
        ("Public access", "yes" if row.public_access else "no"),
        ("Allowed callers", _listed(row.ingress, "everybody")),
        ("Ports inside", _listed(row.ingress_ports, "every one")),
        ("SSH", f"on, {len(row.ssh_keys)} keys" if row.ssh_enabled else "off"),
        ("Applied by the host", "not yet" if row.network_stale else "yes"),
    ]
    return Panel("Network policy", facts)


def _listed(values: list[object], otherwise: str) -> str:
    return ", ".join(str(value) for value in values[:20]) or otherwise


@panel(WORKSPACE, "Network", "workspaces.view_publicport")
def ports_panel(request: HttpRequest, row: Workspace) -> Panel:
    columns = (
        ("Port", lambda port: row_link(port, port.port)),
        ("Hash", lambda port: port.hash),
        ("Slug", lambda port: port.slug or "-"),
        ("Label", lambda port: port.label or "-"),
        ("Access", lambda port: port.access),
        ("Since", lambda port: time_text(port.created_at)),
    )
    found = PublicPort.objects.filter(workspace=row).order_by("port")
    return table(
        "Public ports", found, columns, more=list_url("workspaces.PublicPort", by_workspace=row.pk), wide=False
    )


@panel(WORKSPACE, "Network", "workspaces.view_portlink")
def links_panel(request: HttpRequest, row: Workspace) -> Panel:
    columns = (
        ("Link", lambda link: row_link(link, link.pk)),
        ("Port", lambda link: link.port.port),
        ("Label", lambda link: link.label or "-"),
        ("Until", lambda link: time_text(link.expires_at)),
        ("Last used", lambda link: time_text(link.last_used_at)),
    )
    found = PortLink.objects.filter(port__workspace=row).select_related("port").order_by("-id")
    return table("Links to private ports", found, columns, more=list_url("workspaces.PortLink", q=row.pk), wide=False)


@panel(WORKSPACE, "Network", "domains.view_customdomain")
def domains_panel(request: HttpRequest, row: Workspace) -> Panel:
    return domains_of(row.pk)


def domains_of(target_id: str) -> Panel:
    """Return the custom domains that lead to a page or workspace."""
    columns = (
        ("Name", lambda domain: row_link(domain, domain.name)),
        ("Port", lambda domain: domain.port or "-"),
        ("Proven", lambda domain: time_text(domain.proven_at)),
    )
    found = CustomDomain.objects.filter(target_id=target_id).order_by("name")
    more = list_url("domains.CustomDomain", by_target_id=target_id)
    return table("Custom domains", found, columns, more=more, wide=False)


@panel(WORKSPACE, "Network", "pages.view_page")
def pages_panel(request: HttpRequest, row: Workspace) -> Panel:
    columns = (
        ("Page", lambda page: row_link(page, page.slug)),
        ("Name", lambda page: page.name),
        ("Release", lambda page: page.release or "-"),
    )
    found = Page.objects.filter(account_id=row.account_id, source_workspace_id=row.pk).order_by("-id")
    more = list_url("pages.Page", by_source_workspace_id=row.pk)
    return table("Pages made of it", found, columns, more=more, wide=False)
