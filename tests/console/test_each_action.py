"""What staff's actions do, by the services; those of pages, sandboxes and accounts are tested beside their apps."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from assist.services import api_key_create
from cdn.models import File
from common.errors import VMUnavailable
from config import health
from credits import ledger
from credits.entries import Purpose
from credits.models import Balance, Entry, Service
from namespaces.models import Namespace, NamespaceActivity
from staff.models import StaffEntry
from tests.callers import Caller
from tests.cdn.rows import make_file
from tests.notifications.conftest import sender_of
from tests.staff.pages import confirm, shown
from tests.webhooks.outbox import subscribe
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.models import Host
from webhooks.events import TEST_EVENT, event_send_to
from webhooks.models import Delivery, DeliveryStatus
from workspaces import placement
from workspaces.models import Activity, Operation, Workspace
from workspaces.quota import Amount

pytestmark = pytest.mark.django_db
WHY = "It was asked for."


@pytest.fixture
def team(api: Caller) -> Namespace:
    return Namespace.objects.create(account=api.account, name="Team", slug="team")


def reasons(namespace: Namespace) -> list[str]:
    rows = NamespaceActivity.objects.filter(namespace_id=namespace.pk, action="staff_action", actor="staff root")
    return list(rows.order_by("pk").values_list("detail", flat=True))


@pytest.mark.parametrize(
    ("action", "status", "kind"),
    [
        ("start", "stopped", "start"),
        ("start", "sleeping", "wake"),
        ("stop", "running", "stop"),
        ("restart", "running", "restart"),
        ("sleep", "running", "sleep"),
        ("pause", "running", "pause"),
        ("resume", "paused", "resume"),
        ("resume", "sleeping", "wake"),
        ("retry", "failed", "create"),
        ("reinstall", "stopped", "reinstall"),
        ("destroy_machine", "stopped", "destroy"),
        ("remove", "running", "delete"),
    ],
)
def test_an_action_on_a_workspace_queues_its_operation(
    staff: Client, api: Caller, action: str, status: str, kind: str
) -> None:
    row = make_workspace(api.account, host=make_host(), ip="10.200.0.2", status=status)
    assert shown(confirm(staff, "workspaces/workspace", action, row.pk, reason=WHY))[0].endswith("1 done.")
    operation = Operation.objects.get()
    assert (operation.kind, operation.actor) == (kind, "staff root")
    given = Activity.objects.get(action="staff_action")
    assert (given.workspace_id, given.actor, given.detail.partition(": ")[2]) == (row.pk, "staff root", WHY)


def test_a_namespace_is_suspended_activated_and_its_machines_are_stopped(
    staff: Client, api: Caller, team: Namespace
) -> None:
    host = make_host()
    rows = [make_workspace(api.account, namespace=team, host=host, ip=f"10.200.0.{number}") for number in (2, 3)]
    confirm(staff, "namespaces/namespace", "stop_all", team.pk, reason=WHY)
    assert Operation.objects.filter(kind="stop", actor="staff root").count() == 2
    confirm(staff, "namespaces/namespace", "suspend", team.pk, reason=WHY)
    team.refresh_from_db()
    assert (team.status, team.suspended_by_hand) == ("suspended", True)
    confirm(staff, "namespaces/namespace", "activate", team.pk)
    team.refresh_from_db()
    assert team.status == "active"
    assert reasons(team) == [f"Stop all machines by staff: {WHY}", f"Suspend by staff: {WHY}"]
    outcomes = StaffEntry.objects.filter(object_id=team.pk).order_by("pk").values_list("action", "outcome")
    assert [f"{action.partition('.')[2]} {outcome}" for action, outcome in outcomes] == [
        "stop_all begun", "stop_all done", "suspend begun", "suspend done", "activate done",
    ]  # fmt: skip
    assert Workspace.objects.filter(pk__in=[row.pk for row in rows], status="stopping").count() == 2


def test_the_default_namespace_is_not_suspended_and_the_refusal_is_recorded(staff: Client, api: Caller) -> None:
    default = api.account.namespaces.get()
    answer = confirm(staff, "namespaces/namespace", "suspend", default.pk, reason=WHY)
    assert "cannot be suspended" in shown(answer)[0]
    assert list(StaffEntry.objects.order_by("pk").values_list("outcome", flat=True)) == ["begun", "refused"]
    assert reasons(default) == []


@pytest.fixture
def balance(team: Namespace) -> Balance:
    common: dict[str, Any] = {"namespace": team, "service": Service.SANDBOX}
    limits = {"limit": Decimal(10), "overdraft": Decimal(1), "action": "block", "thresholds": [80]}
    ledger.quota_set(**common, **limits)
    ledger.credits_charge(**common, amount=Decimal(12), purpose=Purpose())
    return Balance.objects.get()


def test_a_quota_is_raised_to_a_number_and_nothing_else_of_it_changes(
    staff: Client, team: Namespace, balance: Balance
) -> None:
    team.refresh_from_db()
    assert team.status == "suspended"
    for limit, sentence in (("9", "is 10 credits already"), ("10", "already"), ("", "1 done"), ("1e30", "1 done")):
        answer = confirm(staff, "credits/balance", "raise_quota", balance.pk, limit=limit, reason=WHY)
        assert (sentence in " ".join(shown(answer))) == (limit in ("9", "10"))
    confirm(staff, "credits/balance", "raise_quota", balance.pk, limit="20.5", reason=WHY)
    balance.refresh_from_db()
    assert (balance.quota_limit, balance.overdraft, balance.used) == (Decimal("20.5"), 1, 12)
    assert (balance.on_overdraft_action, balance.notification_thresholds) == ("block", [80])
    team.refresh_from_db()
    assert team.status == "active"
    assert reasons(team) == [f"Raise the quota by staff: {WHY}"]


def test_a_quota_is_reset_with_an_entry_in_the_ledger(staff: Client, team: Namespace, balance: Balance) -> None:
    confirm(staff, "credits/balance", "reset", balance.pk, reason=WHY)
    balance.refresh_from_db()
    assert balance.used == 0
    assert Entry.objects.latest("pk").description == "Reset by staff root."
    assert reasons(team) == [f"Reset by staff: {WHY}"]


def test_without_a_quota_nothing_is_raised_and_without_a_namespace_nothing_is_reset(
    staff: Client, team: Namespace, balance: Balance
) -> None:
    Balance.objects.update(quota_limit=None)
    answer = confirm(staff, "credits/balance", "raise_quota", balance.pk, limit="5", reason=WHY)
    assert "There is no quota" in shown(answer)[0]
    Namespace.objects.filter(pk=team.pk).delete()
    answer = confirm(staff, "credits/balance", "reset", balance.pk, reason=WHY)
    assert "It has been deleted." in shown(answer)[0]


def test_a_delivery_is_sent_again_unless_its_webhook_is_off(staff: Client, api: Caller, team: Namespace) -> None:
    webhook = subscribe(api.account, namespace_id=team.pk, namespace_slug="team")
    sent = event_send_to(webhook, TEST_EVENT, {})
    Delivery.objects.update(status=DeliveryStatus.FAILED, attempts=8, next_attempt_at=None)
    confirm(staff, "webhooks/delivery", "redeliver", sent.pk, reason=WHY)
    assert list(Delivery.objects.values_list("status", "attempts")) == [("pending", 0)]
    assert reasons(team) == [f"Deliver again by staff: {WHY}"]
    confirm(staff, "webhooks/subscription", "switch_off", webhook.pk, reason=WHY)
    answer = confirm(staff, "webhooks/delivery", "redeliver", sent.pk)
    assert "is switched off" in shown(answer)[0]


def test_tokens_and_keys_are_revoked_and_not_shown(staff: Client, api: Caller) -> None:
    sender = sender_of(api)
    answer = confirm(staff, "notifications/sendtoken", "revoke", sender.token.pk, reason=WHY)
    assert sender.secret not in answer.content.decode()
    assert sender.post({"title": "x", "body": "y"}).status_code == 401
    made = api_key_create(account=api.account, name="mine", namespace=None, actor="test")
    answer = confirm(staff, "assist/apikey", "revoke", made.api_key.pk, reason=WHY)
    assert made.key not in answer.content.decode()
    assert not type(made.api_key).objects.exists()


def test_a_file_is_trashed_restored_and_deleted_with_its_bytes(staff: Client, api: Caller, team: Namespace) -> None:
    file = make_file(api.account, team)
    for action, status in (("trash", "trashed"), ("restore", "active")):
        confirm(staff, "cdn/file", action, file.pk, reason=WHY)
        file.refresh_from_db()
        assert file.status == status
    confirm(staff, "cdn/file", "purge", file.pk, reason=WHY)
    assert not File.objects.exists()
    assert reasons(team) == [
        f"{label} by staff: {WHY}" for label in ("Move to the trash", "Restore from the trash", "Delete with its bytes")
    ]


def test_a_host_that_is_drained_takes_no_new_machine_and_says_so(staff: Client, client: Client) -> None:
    wanted = Amount(cpu_millis=100, memory_mb=128, disk_size_mb=64)
    one, two = make_host("one").pk, make_host("two").pk
    confirm(staff, "vmbackend/host", "drain", one, reason=WHY)
    assert {placement.place_on_host(wanted).name for _ in range(5)} == {"two"}
    health.PROBLEMS.invalidate()
    assert client.get("/readyz").json()["checks"]["hosts"]["ok"]
    confirm(staff, "vmbackend/host", "drain", two, reason=WHY)
    with pytest.raises(VMUnavailable):
        placement.place_on_host(wanted)
    health.PROBLEMS.invalidate()
    assert "No host is active" in client.get("/readyz").json()["checks"]["hosts"]["message"]
    confirm(staff, "vmbackend/host", "activate", one, reason=WHY)
    assert placement.place_on_host(wanted).name == "one"
    health.PROBLEMS.invalidate()


def test_a_host_with_workspaces_is_not_deleted(staff: Client, api: Caller) -> None:
    host = make_host()
    row = make_workspace(api.account, host=host, ip="10.200.0.2")
    answer = confirm(staff, "vmbackend/host", "remove", host.pk, reason=WHY)
    assert row.name in shown(answer)[0]
    row.delete()
    confirm(staff, "vmbackend/host", "remove", host.pk, reason=WHY)
    assert not Host.objects.exists()
