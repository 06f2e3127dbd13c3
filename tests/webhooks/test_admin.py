"""Staff: webhooks without what is secret of them; switching off and on by the services."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.models import Account
from namespaces.models import NamespaceActivity
from tests.callers import Caller
from tests.staff.pages import action_url, confirm
from tests.webhooks.outbox import subscribe
from tests.workspaces.rows import make_workspace
from webhooks.events import TEST_EVENT, event_send_to
from webhooks.models import AuditEntry, Delivery, DeliveryStatus, DisabledReason, Event, Subscription
from webhooks.subscriptions import subscription_delete

pytestmark = pytest.mark.django_db

LIST = "/admin/webhooks/subscription/"
URL = "https://hooks.example.com/in?token=t0ken"


@pytest.fixture
def webhook(api: Caller) -> Subscription:
    return subscribe(api.account, url=URL, former_secret="whsec_Zm9ybWVy")


def switch(client: Client, action: str, webhook: Subscription) -> None:
    confirm(client, "webhooks/subscription", action, webhook.pk, reason="why")
    webhook.refresh_from_db()


def test_staff_see_no_secret(staff: Client, webhook: Subscription) -> None:
    for path in (LIST, f"{LIST}{webhook.pk}/change/"):
        text = staff.get(path).content.decode()
        assert "hooks.example.com" in text
        for secret in ("t0ken", webhook.secret, webhook.former_secret):
            assert secret not in text


def test_staff_switch_off_and_on(staff: Client, webhook: Subscription) -> None:
    event_send_to(webhook, TEST_EVENT, {})
    switch(staff, "switch_off", webhook)
    assert (webhook.active, Delivery.objects.get().status) == (False, DeliveryStatus.DISABLED)
    Subscription.objects.update(disabled_reason=DisabledReason.FAILING)
    switch(staff, "switch_on", webhook)
    assert (webhook.active, webhook.disabled_reason) == (True, None)
    entries = AuditEntry.objects.order_by("pk")
    assert [(entry.action, entry.actor) for entry in entries] == [("webhook_updated", "staff root")] * 2


def test_a_deleted_webhook_is_shown_as_that_and_has_no_button(staff: Client, webhook: Subscription) -> None:
    subscription_delete(subscription=webhook, actor="ci key")
    for path in (LIST, f"{LIST}{webhook.pk}/change/"):
        answer = staff.get(path)
        assert ">deleted</span>" in answer.content.decode()
        assert ">disabled</span>" not in answer.content.decode()
    assert answer.context["actions_detail"] == []


def test_staff_who_may_only_look_switch_nothing(webhook: Subscription) -> None:
    client = Client()
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_subscription"))
    client.force_login(viewer)
    assert client.get(LIST).status_code == 200
    assert client.get(action_url("webhooks/subscription", "switch_off", webhook.pk)).status_code == 403


def test_forms_write_nothing(staff: Client, webhook: Subscription) -> None:
    assert staff.get(f"{LIST}add/").status_code == 403
    assert staff.post(f"{LIST}{webhook.pk}/change/", {"active": "", "host": "else.example.com"}).status_code == 403
    assert staff.post(f"{LIST}{webhook.public_id}/delete/", {"post": "yes"}).status_code == 403
    webhook.refresh_from_db()
    assert (webhook.active, webhook.host) == (True, "hooks.example.com")


def test_staff_delete_an_account_with_all_that_was_sent_for_it(
    staff: Client, api: Caller, webhook: Subscription
) -> None:
    api.put(f"/webhooks/{webhook.public_id}", {"events": ["vm.lost"]})
    api.put("/namespaces/default", {"description": "changed"})
    for _ in range(30):
        event_send_to(webhook, TEST_EVENT, {})
    confirm(staff, "accounts/account", "remove", api.account.pk, reason="why")
    for model in (Account, Subscription, Event, Delivery, AuditEntry, NamespaceActivity):
        assert not model._default_manager.exists(), model


def test_an_account_with_workspaces_is_not_deleted(staff: Client, api: Caller) -> None:
    row = make_workspace(api.account)
    refused = confirm(staff, "accounts/account", "remove", api.account.pk, reason="why")
    assert row.name in refused.content.decode()
    assert Account.objects.filter(pk=api.account.pk).exists()
