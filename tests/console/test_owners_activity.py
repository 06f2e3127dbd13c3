"""What the owner reads of what staff did: also of what concerns the account alone, and without a reason."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import Credential
from accounts.scopes import Scope, ScopeBinding
from accounts.services import credential_issue
from assist.services import api_key_create
from certificates.models import Certificate
from credits.models import Balance
from namespaces.models import Namespace
from staff.models import StaffEntry
from tests.callers import Caller
from tests.pages.rows import make_page
from tests.staff.pages import confirm, shown
from tests.webhooks.outbox import subscribe
from webhooks.events import TEST_EVENT, event_send_to
from webhooks.models import Delivery, DeliveryStatus

pytestmark = pytest.mark.django_db
WHY = "It was asked for."


def read(api: Caller) -> list[str]:
    """What the API says of staff, oldest first."""
    entries = api.get("/namespaces/default/activity").json()["data"]
    found = [one["description"] for one in entries if one["action"] == "staff_action"]
    assert {one["user_id"] for one in entries if one["action"] == "staff_action"} <= {"staff root"}
    return found[::-1]


def other_credential(api: Caller) -> Credential:
    issued = credential_issue(account=api.account, name="other", scope=Scope.BILLING, binding=ScopeBinding())
    return issued.credential


def test_what_concerns_the_account_alone_is_in_its_default_namespace(staff: Client, api: Caller) -> None:
    confirm(staff, "accounts/credential", "end_tokens", other_credential(api).pk, reason=WHY)
    confirm(staff, "accounts/credential", "revoke", other_credential(api).pk, reason=WHY)
    key = api_key_create(account=api.account, name="mine", namespace=None, actor="test").api_key
    confirm(staff, "assist/apikey", "revoke", key.pk, reason=WHY)
    confirm(staff, "webhooks/subscription", "switch_off", subscribe(api.account).pk, reason=WHY)
    confirm(staff, "accounts/account", "deactivate", api.account.pk, reason=WHY)
    confirm(staff, "accounts/account", "activate", api.account.pk)
    assert read(api) == [
        f"Replace the secret by staff: {WHY}", f"Revoke by staff: {WHY}", f"Revoke by staff: {WHY}",
        f"Switch off by staff: {WHY}", f"Deactivate by staff: {WHY}", "Activate by staff.",
    ]  # fmt: skip


def test_the_deletion_of_a_namespace_is_in_the_default_one(staff: Client, api: Caller) -> None:
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    confirm(staff, "namespaces/namespace", "remove", team.pk, reason=WHY)
    assert read(api) == [f"Delete by staff: {WHY}"]


def test_what_needs_no_reason_and_has_no_entry_of_its_own_is_read_too(staff: Client, api: Caller) -> None:
    webhook, namespace = subscribe(api.account), api.account.namespaces.get()
    sent = event_send_to(webhook, TEST_EVENT, {})
    Delivery.objects.update(status=DeliveryStatus.FAILED, next_attempt_at=None)
    confirm(staff, "webhooks/delivery", "redeliver", sent.pk)
    balance = Balance.objects.create(
        account_id=api.account.pk, namespace_id=namespace.pk, service="cdn", quota_limit=Decimal(5)
    )
    confirm(staff, "credits/balance", "raise_quota", balance.pk, limit="7")
    page = make_page(api.account, slug="site", status="disabled")
    confirm(staff, "pages/page", "enable", page.pk)
    made = certificate(api, chain="chain")
    confirm(staff, "certificates/certificate", "renew", made.pk)
    assert read(api) == [
        "Deliver again by staff.", "Raise the quota by staff.", "Enable by staff.", "Renew now by staff.",
    ]  # fmt: skip


def test_what_staff_write_by_forms_is_read_with_the_names_of_what_changed(staff: Client, api: Caller) -> None:
    url = f"/admin/accounts/account/{api.account.pk}/change/"
    assert staff.post(url, {"name": api.account.name, "plan": "free", "reason": WHY}).status_code == 302
    fields = {"account": api.account.pk, "name": "made by staff", "scope": "account"}
    assert staff.post("/admin/accounts/credential/add/", fields).status_code == 302
    assert read(api) == [
        f"Account {api.account} changed by staff: Plan; {WHY}", "Credential made by staff added by staff.",
    ]  # fmt: skip


def test_the_activity_of_a_namespace_has_the_reason_of_a_form(staff: Client, api: Caller) -> None:
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    fields = {"name": "Crew", "type": "default", "metadata": "{}", "tags": "[]", "reason": WHY}
    assert staff.post(f"/admin/namespaces/namespace/{team.pk}/change/", fields).status_code == 302
    assert read(api) == []
    entries = api.get("/namespaces/team/activity").json()["data"]
    assert [one["user_id"] for one in entries] == ["staff root"] * 2
    assert [one["description"] for one in entries if one["action"] == "staff_action"] == [
        f"Namespace {Namespace.objects.get(pk=team.pk)} changed by staff: Name; {WHY}"
    ]


def test_a_namespace_that_staff_make_without_a_reason_has_one_entry(staff: Client, api: Caller) -> None:
    fields = {"account": api.account.pk, "slug": "team", "name": "Team", "type": "default", "metadata": "{}"}
    sent = {**fields, "tags": "[]", "resource_limits": "{}", "status": "active"}
    assert staff.post("/admin/namespaces/namespace/add/", sent).status_code == 302
    entries = api.get("/namespaces/team/activity").json()["data"]
    assert [one["action"] for one in entries] == ["saved"]


def certificate(api: Caller, **fields: Any) -> Certificate:
    now = timezone.now()
    whole = {"status": "active", "key": "key", "not_before": now, "expires_at": now + timedelta(days=60)}
    values = {**(whole if fields.get("chain") else {}), **fields}
    common: dict[str, Any] = {"owner": api.account.pk, "next_attempt_at": now, "due_at": now}
    return Certificate.objects.create(name="shop.example.com", **common, **values)


def test_a_certificate_that_is_being_removed_is_not_ordered_again(staff: Client, api: Caller) -> None:
    made = certificate(api, wanted=False)
    page = staff.get(f"/admin/certificates/certificate/{made.pk}/change/")
    assert page.context["actions_detail"] == []
    answer = confirm(staff, "certificates/certificate", "retry", made.pk)
    assert "it is being removed" in shown(answer)[0]
    made.refresh_from_db()
    assert not made.wanted
    assert StaffEntry.objects.get().outcome == "refused"
    assert read(api) == []
