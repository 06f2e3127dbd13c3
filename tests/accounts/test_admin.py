"""The admin of plans, accounts and credentials writes through services only."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.utils import timezone

from accounts import services
from accounts.models import Account, Credential, Plan
from common.admin import ReadOnlyAdmin
from config.app_list import APPS
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.rows import make_host
from vmbackend.admin import HostAdmin
from vmbackend.models import Host

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("model", [model for model in admin.site._registry if model._meta.app_label in APPS])
def test_no_admin_saves_or_deletes_a_row_itself(model: type) -> None:
    one = type(admin.site._registry[model])
    source = inspect.getsource(one)
    assert ".save(" not in source
    assert ".delete(" not in source
    assert "super().save_model" not in source
    if not issubclass(one, ReadOnlyAdmin):
        writers = ("save_model", "delete_model", "delete_queryset")
        assert [name for name in writers if getattr(one, name) is getattr(admin.ModelAdmin, name)] == []


def test_an_account_is_changed_and_its_credentials_are_refused_while_inactive(staff: Client, api: Caller) -> None:
    change = f"/admin/accounts/account/{api.account.pk}/change/"
    assert staff.post(change, {"name": "renamed", "plan": "free"}).status_code == 302
    api.account.refresh_from_db()
    assert (api.account.name, api.account.plan_id, api.account.is_active) == ("renamed", "free", False)
    assert api.get("/workspace").status_code == 401
    staff.post(change, {"name": "renamed", "plan": "free", "is_active": "on"})
    assert api.get("/workspace").status_code == 200


def test_an_account_may_be_created_inactive(staff: Client) -> None:
    staff.post("/admin/accounts/account/add/", {"name": "later", "plan": "pro"})
    account = Account.objects.get(name="later")
    assert (account.is_active, account.namespaces.count(), account.credentials.count()) == (False, 1, 1)


def test_a_deleted_credential_is_refused(staff: Client, api: Caller) -> None:
    credential = Credential.objects.get(client_id=api.client_id)
    form = {"action": "delete_selected", "post": "yes", "_selected_action": [credential.pk]}
    staff.post("/admin/accounts/credential/", form)
    assert not Credential.objects.exists()
    assert api.get("/workspace").status_code == 401


def test_a_plan_in_use_is_not_deleted(staff: Client, api: Caller) -> None:
    unused = Plan.objects.exclude(pk=api.account.plan_id).first()
    assert unused is not None
    for plan in (api.account.plan, unused):
        staff.post(f"/admin/accounts/plan/{plan.pk}/delete/", {"post": "yes"})
    assert Plan.objects.filter(pk=api.account.plan_id).exists()
    assert not Plan.objects.filter(pk=unused.pk).exists()


def test_an_account_without_workspaces_is_deleted_with_what_belongs_to_it(staff: Client, api: Caller) -> None:
    services.idempotency_record(account=api.account, key="k", fingerprint="f", resource_id="ws_1")
    staff.post(f"/admin/accounts/account/{api.account.pk}/delete/", {"post": "yes"})
    assert not Account.objects.exists()
    assert not Namespace.objects.exists()


def test_staff_close_a_host_to_new_machines_and_change_nothing_else_of_it(staff: Client) -> None:
    host = make_host()
    page = f"/admin/vmbackend/host/{host.pk}/change/"
    assert staff.post(page, {"accepts_new": "", "memory_mb": "1"}).status_code == 302
    closed = Host.objects.get()
    assert not closed.accepts_new
    assert (closed.memory_mb, closed.last_seen_at) == (host.memory_mb, host.last_seen_at)
    assert staff.post(f"/admin/vmbackend/host/{host.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Host.objects.exists()


def test_a_form_that_was_open_does_not_undo_what_the_host_has_stored_since(
    staff: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host()
    seen = timezone.now()

    real = HostAdmin.save_form

    def stored_in_between(*args: Any, **kwargs: Any) -> Any:
        Host.objects.update(last_seen_at=seen)
        return real(*args, **kwargs)

    monkeypatch.setattr(HostAdmin, "save_form", stored_in_between)
    staff.post(f"/admin/vmbackend/host/{host.pk}/change/", {"accepts_new": "on"})
    assert Host.objects.get().last_seen_at == seen
