"""Staff: sandboxes and their audit entries. The machines are in the list of workspaces."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from unfold.decorators import action

from common.admin import ReadOnlyAdmin, ServiceModelAdmin, call_for_each, staff_label
from common.admin_columns import id_column, link_column, state_column, text_column, time_column
from common.admin_lists import AgeFilter, IdFilter
from common.request_origin import request_origin
from edge.sandbox_address import sandbox_address
from sandboxes import services
from sandboxes.models import Sandbox, SandboxEvent


@admin.register(Sandbox)
class SandboxAdmin(ServiceModelAdmin):
    list_display = (
        "id", link_column("workspace", text="name"), link_column("workspace__account", text="name"),
        link_column("workspace__namespace", text="slug"), state_column("workspace__status", "Status"),
        time_column("token_changed_at"), time_column("created_at"),
    )  # fmt: skip
    list_filter = (
        "workspace__status", ("workspace__account", IdFilter), ("workspace__namespace", IdFilter),
        ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("workspace__account", "workspace__namespace")
    search_fields = ("workspace__name", "workspace__account__name")
    search_ids = ("id", "workspace__id", "workspace__account__id")
    search_ips = ("workspace__ip",)
    ordering = ("-id",)
    exclude = ("token_hash",)
    readonly_fields = ("id", "workspace", "token_changed_at", "created_at")
    actions = ("start", "stop", "restart", "end_token")
    actions_detail = ("terminal",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Sandbox]:
        # The secrets of the machines are not decrypted for a list.
        return super().get_queryset(request).defer("workspace__env", "workspace__workloads")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def save_by_service(self, request: HttpRequest, obj: Sandbox, *, change: bool) -> None:
        """Nothing of a sandbox can be edited; actions change it."""

    def delete_by_service(self, request: HttpRequest, obj: Sandbox) -> None:
        services.sandbox_delete(workspace=obj.workspace, actor=staff_label(request))

    @admin.action(description="Start")
    def start(self, request: HttpRequest, rows: QuerySet[Sandbox]) -> None:
        self._each(request, rows, services.sandbox_start)

    @admin.action(description="Stop")
    def stop(self, request: HttpRequest, rows: QuerySet[Sandbox]) -> None:
        self._each(request, rows, services.sandbox_stop)

    @admin.action(description="Restart")
    def restart(self, request: HttpRequest, rows: QuerySet[Sandbox]) -> None:
        self._each(request, rows, services.sandbox_restart)

    @admin.action(description="End the token (the owner regenerates it)")
    def end_token(self, request: HttpRequest, rows: QuerySet[Sandbox]) -> None:
        """A new token that is not shown."""
        self._each(request, rows, services.token_regenerate)

    @action(description="Open a terminal", url_path="terminal", permissions=["change"])
    def terminal(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """A page that says what it means, whose button makes a token of this user's own and opens the terminal page."""
        row = self.get_queryset(request).select_related("workspace__account").filter(pk=object_id).first()
        if row is None:
            raise Http404
        if request.method != "POST":
            minutes = int(services.STAFF_TOKEN_LIFE.total_seconds() // 60)
            context = {**self.admin_site.each_context(request), "title": "Open a terminal", "sandbox": row}
            return render(request, "admin/sandboxes/sandbox/terminal.html", {**context, "minutes": minutes})
        assert isinstance(request.user, User)  # noqa: S101  # the admin lets in no other
        token = services.staff_token_create(
            workspace=row.workspace, user=request.user, actor=staff_label(request), origin=request_origin(request)
        )
        # A fragment is sent to no server, and the page removes it.
        address = f"{_address(row)}/terminal#token={token}"
        return HttpResponseRedirect(address, headers={"Referrer-Policy": "no-referrer"})

    def _each(self, request: HttpRequest, rows: QuerySet[Sandbox], service: services.SandboxService) -> None:
        rows = rows.select_related("workspace__account__plan", "workspace__host", "workspace__namespace")
        actor = staff_label(request)
        call_for_each(request, rows, lambda row: service(workspace=row.workspace, actor=actor))


def _address(row: Sandbox) -> str:
    """By path without the host, so that it is the one by which the admin was opened."""
    address = sandbox_address(settings.ENV.sandbox_url)
    url = address.url(row.pk)
    return url if address.suffix else urlsplit(url).path


@admin.register(SandboxEvent)
class SandboxEventAdmin(ReadOnlyAdmin):
    list_display = (
        time_column("created_at", "When"), id_column("sandbox_id", "sandboxes.Sandbox"), "action", text_column("actor"),
        "ip_address",
    )  # fmt: skip
    list_filter = (("action", IdFilter), ("sandbox_id", IdFilter), ("created_at", AgeFilter))
    search_fields = ("=actor", "=action")
    search_ids = ("sandbox_id",)
    keyset = ("-id",)
