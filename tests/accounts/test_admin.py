"""The admin of plans, accounts and credentials writes through services only."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client

from accounts import services
from accounts.models import Account, Credential, Plan
from common.errors import NotFound
from config.app_list import APPS
from namespaces.models import Namespace
from staff.action_admin import DeletedByActionMixin
from staff.models import StaffEntry
from staff.parts.bases import ReadOnlyAdmin
from tests.callers import Caller
from tests.staff.pages import confirm, shown

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("model", [model for model in admin.site._registry if model._meta.app_label in APPS])
def test_no_admin_saves_or_deletes_a_row_itself(model: type) -> None:
    one = type(admin.site._registry[model])
    source = inspect.getsource(one)
    assert ".save(" not in source
    assert ".delete(" not in source
    assert "super().save_model" not in source
    if not issubclass(one, ReadOnlyAdmin):
        assert issubclass(one, DeletedByActionMixin)
        assert one.save_model is not admin.ModelAdmin.save_model


def test_an_account_is_changed_and_stays_active(staff: Client, api: Caller) -> None:
    change = f"/admin/accounts/account/{api.account.pk}/change/"
    assert staff.post(change, {"name": "renamed", "plan": "free", "is_active": "", "reason": "why"}).status_code == 302
    api.account.refresh_from_db()
    assert (api.account.name, api.account.plan_id, api.account.is_active) == ("renamed", "free", True)
    assert api.get("/workspace").status_code == 200


def test_an_account_may_be_created_inactive(staff: Client) -> None:
    staff.post("/admin/accounts/account/add/", {"name": "later", "plan": "pro"})
    account = Account.objects.get(name="later")
    assert (account.is_active, account.namespaces.count(), account.credentials.count()) == (False, 1, 1)


def test_a_deleted_credential_is_refused(staff: Client, api: Caller) -> None:
    credential = Credential.objects.get(client_id=api.client_id)
    confirm(staff, "accounts/credential", "revoke", credential.pk, reason="It was leaked.")
    assert not Credential.objects.exists()
    assert api.get("/workspace").status_code == 401


def test_a_plan_in_use_is_not_deleted(staff: Client, api: Caller) -> None:
    unused = Plan.objects.exclude(pk=api.account.plan_id).first()
    assert unused is not None
    for plan in (api.account.plan, unused):
        confirm(staff, "accounts/plan", "remove", plan.pk, reason="why")
    assert Plan.objects.filter(pk=api.account.plan_id).exists()
    assert not Plan.objects.filter(pk=unused.pk).exists()


def test_an_account_without_workspaces_is_deleted_with_what_belongs_to_it(staff: Client, api: Caller) -> None:
    services.idempotency_record(account=api.account, key="k", fingerprint="f", resource_id="ws_1")
    confirm(staff, "accounts/account", "remove", api.account.pk, reason="why")
    assert not Account.objects.exists()
    assert not Namespace.objects.exists()


def test_staff_deactivate_and_activate_an_account_with_a_reason(staff: Client, api: Caller) -> None:
    confirm(staff, "accounts/account", "deactivate", api.account.pk, reason="Unpaid.")
    assert api.get("/workspace").status_code == 401
    confirm(staff, "accounts/account", "activate", api.account.pk)
    assert api.get("/workspace").status_code == 200


def test_staff_replace_a_secret_and_see_none(staff: Client, api: Caller) -> None:
    credential = Credential.objects.get(client_id=api.client_id)
    answer = confirm(staff, "accounts/credential", "end_tokens", credential.pk, reason="It was leaked.")
    assert "sec_" not in answer.content.decode()
    assert api.get("/workspace").status_code == 401
    assert Credential.objects.get().epoch == credential.epoch + 1


def test_a_deactivation_leaves_alone_what_was_changed_since_the_account_was_read(api: Caller) -> None:
    stale = Account.objects.get(pk=api.account.pk)
    Account.objects.filter(pk=stale.pk).update(name="renamed")
    services.account_switch(stale, is_active=False)
    stored = Account.objects.get(pk=stale.pk)
    assert (stored.name, stored.is_active) == ("renamed", False)


def deleted_at(query: str, account: Account) -> Any:
    """Another request deletes the account just before the first query that has this."""
    gone = []

    def run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if query in sql and not gone:
            gone.append(sql)
            Account.objects.filter(pk=account.pk).delete()
        return execute(sql, params, many, context)

    return connection.execute_wrapper(run)


@pytest.mark.parametrize("action", ["deactivate", "activate"])
def test_an_account_that_is_deleted_while_staff_switch_it_is_a_refusal(staff: Client, api: Caller, action: str) -> None:
    with deleted_at('INSERT INTO "staff_staffentry"', api.account):
        answer = confirm(staff, "accounts/account", action, api.account.pk, reason="why")
    assert answer.status_code == 200
    assert [text.endswith("There is no such account.") for text in shown(answer)] == [True]
    assert StaffEntry.objects.get().outcome == "refused"


def test_what_is_deleted_while_its_form_is_saved_is_said_in_the_form(staff: Client, api: Caller) -> None:
    credential = Credential.objects.get()
    change = f"/admin/accounts/credential/{credential.pk}/change/"
    with deleted_at('UPDATE "accounts_credential"', api.account):
        sent = {"name": "renamed", "account": api.account.pk, "scope": "account", "reason": "why"}
        answer = staff.post(change, sent, follow=True)
    assert "There is no such credential." in answer.content.decode()
    services.account_delete(api.account)
    with pytest.raises(NotFound):
        services.account_update(api.account, name="renamed", plan=api.account.plan)
