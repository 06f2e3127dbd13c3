"""The admin of plans, accounts and credentials writes through services only."""

from __future__ import annotations

import inspect

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.test import Client

from accounts import services
from accounts.models import Account, Credential, Plan
from common.admin import ServiceModelAdmin
from credits.models import Rate
from namespaces.models import Namespace
from tests.callers import Caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", password="not-used-here-1"))
    return client


@pytest.mark.parametrize("model", [Plan, Account, Credential, Namespace, Rate])
def test_no_admin_saves_or_deletes_a_row_itself(model: type) -> None:
    one = admin.site._registry[model]
    assert isinstance(one, ServiceModelAdmin)
    source = inspect.getsource(type(one))
    assert ".save(" not in source
    assert ".delete(" not in source
    assert "super().save_model" not in source


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
