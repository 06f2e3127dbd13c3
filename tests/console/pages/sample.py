"""Rows of every kind that the admin shows, with secrets among them: what the pages show, and must not show."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

from django.contrib.auth import get_user_model
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_create
from assist.models import ApiKey, Call, DayCount, KeyEvent
from cdn.models import File, FileEvent, NamespaceQuota, Permit, Pool, Template
from certificates.models import AcmeAccount, Certificate, OrderAttempt
from common.secrets_at_rest import keyed_hash
from console.models import HourlySummary
from credits.models import Balance, Entry, Hold, LedgerCheck, QuotaDefault, Spending
from domains.models import CustomDomain, DomainName
from namespaces.models import Namespace, NamespaceActivity
from notifications.models import Device, NotificationEvent, Send, SendToken
from pages.models import PageDeploy, PageEvent
from sandboxes.models import SandboxEvent
from staff.models import StaffEntry
from tests.pages.rows import make_page, make_release
from tests.sandboxes.rows import make_sandbox
from tests.workspaces.rows import make_host, make_workspace, snapshot_row
from vmbackend.models import Host
from webhooks.models import Attempt, AuditEntry, Delivery, Event, Subscription
from workspaces.models import (
    Activity,
    BillingCycle,
    Metered,
    MeterRecord,
    Operation,
    PortLink,
    PublicPort,
    StreamToken,
    Usage,
    Workspace,
    WorkspaceHour,
)

# In everything that is secret, or may hold what is.
PLANTED = "plantedsecret"
NAMES = ("Acme Robotics", "Blue Harbor", "Cobalt Labs", "Delta Freight", "Ember Health", "Foxglove", "Granite", "Helio")
BOXES = ("api", "worker", "notebook", "crawler", "preview", "agent", "build", "staging")
STATES = ("running", "running", "sleeping", "running", "stopped", "failed", "paused", "starting", "lost", "sleeping")
_numbers = count(1)


def make_sample(accounts: int) -> list[Account]:
    """Accounts with one of everything each."""
    hosts = [make_host(f"host-{name}") for name in "abc"]
    Host.objects.filter(name="host-a").update(load=3.4, version="0.1.0")
    Host.objects.filter(name="host-b").update(load=9.1, version="0.1.0", memory_free_mb=9000, disk_free_mb=90_000)
    seen = timezone.now() - timedelta(minutes=9)
    Host.objects.filter(name="host-c").update(version="0.0.9", last_seen_at=seen, lease_until=seen, state="draining")
    return [make_account(number, hosts[number % 2]) for number in range(accounts)]


def make_account(number: int, host: Host) -> Account:
    account, _ = account_create(name=f"{NAMES[number % len(NAMES)]} {number + 1}", plan="pro")
    namespace = account.namespaces.get()
    box = make_box(account, host, number)
    snapshot_row(box, env={"KEY": PLANTED}, workloads=[{"name": PLANTED}], cmd=[PLANTED]).save()
    make_work(box, number)
    make_usage(box, number)
    make_money(namespace, box, number)
    make_hooks(account, namespace, number)
    make_site(account, namespace, box, number)
    make_files(account, namespace, number)
    make_tokens(account, namespace, box, number)
    return account


def make_box(account: Account, host: Host, number: int) -> Workspace:
    status = STATES[number % len(STATES)]
    failed = {"error_code": "image_pull_failed", "error_message": "The registry does not know this tag."}
    sandbox, _ = make_sandbox(account, host=host, ip=f"10.201.{number // 200}.{number % 200 + 2}", status="running")
    SandboxEvent.objects.create(account=account, sandbox_id=sandbox.pk, action="created", actor="ci key")
    return make_workspace(
        account,
        host=host,
        ip=f"10.200.{number // 200}.{number % 200 + 2}",
        name=f"{BOXES[number % len(BOXES)]}-{number}",
        status=status,
        image="docker.io/library/debian:12",
        cpu_millis=2000,
        memory_mb=4096,
        disk_size_mb=20480,
        env={"DATABASE_PASSWORD": PLANTED},
        workloads=[{"name": "web", "cmd": f"serve --key {PLANTED}", "env": {"KEY": PLANTED}}],
        cmd=["serve", PLANTED],
        metadata={"note": PLANTED},
        created_at=timezone.now() - timedelta(hours=7 * number + 1),
        **(failed if status == "failed" else {}),
    )


def make_work(box: Workspace, number: int) -> None:
    now = timezone.now()
    common = {
        "workspace": box,
        "account_id": box.account_id,
        "queue": box.host.queue if box.host else "default",
        "params": {"env": PLANTED},
    }
    ended = {"attempt": 1, "finished_at": now - timedelta(hours=2), "step": "boot", "actor": "ci key"}
    Operation.objects.create(
        **common, **ended, kind="create", state="succeeded", created_at=now - timedelta(hours=2, seconds=41),
        deadline_at=now,
    )  # fmt: skip
    Operation.objects.create(
        **common, **{**ended, "attempt": 3}, kind="restart", state="failed", created_at=now - timedelta(hours=3),
        deadline_at=now, error_code="guest_not_answering", attention_at=now - timedelta(minutes=5 * number + 1),
        error_message="The machine started, but its guest agent did not answer within 60 seconds.",
    )  # fmt: skip
    Operation.objects.create(
        **common, kind="start", state="running", step="wait_for_guest", attempt=1, claim=secrets.token_hex(8),
        created_at=now - timedelta(seconds=20 + number), lease_until=now + timedelta(seconds=20),
        deadline_at=now + timedelta(minutes=4), actor="staff ann",
    )  # fmt: skip
    for event, detail in (("created", "The workspace was created."), ("started", "The machine was started.")):
        Activity.objects.create(account=box.account, workspace_id=box.pk, action=event, actor="ci key", detail=detail)
    port = PublicPort.objects.create(
        workspace=box, account_id=box.account_id, port=8080, label="web", slug="shop", access="private"
    )
    soon = timezone.now() + timedelta(days=1)
    PortLink.objects.create(
        port=port, account_id=box.account_id, label="For Alice", token_hash=f"{PLANTED}{box.pk}", expires_at=soon
    )
    StaffEntry.objects.create(
        user_name="ann", action="stop", object_type="workspaces.workspace", object_id=box.pk, object_label=str(box),
        account_id=box.account_id, reason="Asked for by its owner.",
    )  # fmt: skip
    user, _ = get_user_model().objects.get_or_create(username="ann", defaults={"is_staff": True})
    StreamToken.objects.create(
        token_hash=f"{PLANTED}{number}", workspace=box, user=user, expires_at=now + timedelta(minutes=5)
    )


def make_usage(box: Workspace, number: int) -> None:
    now = timezone.now()
    Usage.objects.create(
        workspace=box, total_cpu_time_ns=int(8e13), total_disk_read=7 << 30, total_disk_write=3 << 30,
        total_net_rx=2 << 30, total_net_tx=900 << 20,
    )  # fmt: skip
    metered = Metered.objects.create(
        workspace_id=box.pk, namespace_id=box.namespace_id, account_id=box.account_id, workspace_name=box.name
    )
    amounts = {"cpu_time_ns": 10**9, "memory_mb_ms": 10**9, "disk_bytes": 10**6, "network_bytes": 10**6}
    tick = int(now.timestamp() * 1e6)
    MeterRecord.objects.create(metered=metered, period_ms=60_000, tick=tick, **amounts)
    hour = int(now.timestamp()) // 3600 * 3600
    for back in range(24):
        amount = Decimal(str(round(0.4 + ((back * 7 + number) % 11) / 10, 4)))
        WorkspaceHour.objects.create(metered=metered, start=hour - 3600 * back, records=60, credits=amount, **amounts)
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) + 86400 * number
    BillingCycle.objects.create(start=start, end=start + 86400, workspaces=3, credits=Decimal("12.5"), closed_at=now)


def make_money(namespace: Namespace, box: Workspace, number: int) -> None:
    limits = (Decimal(120), Decimal(400), None)
    today = timezone.now().date()
    for place, service in enumerate(("sandbox", "deployment", "cdn")):
        balance = Balance.objects.create(
            account_id=namespace.account_id, namespace_id=namespace.pk, service=service,
            used=Decimal(108 + number % 9 - 30 * place), held=Decimal("1.5"), quota_limit=limits[place],
        )  # fmt: skip
        Entry.objects.create(
            balance=balance, kind="charge", amount=Decimal("1.25"), balance_after=balance.used, workspace_id=box.pk,
            description="metered usage",
        )  # fmt: skip
        for back in range(14):
            spent = Decimal(3 + (back * (number + 2) + place) % 7)
            Spending.objects.create(balance=balance, day=today - timedelta(days=back), credits=spent, requests=40)
    Hold.objects.create(
        key=f"upload-{number}", balance=balance, amount=Decimal("1.5"), expires_at=timezone.now() + timedelta(hours=1)
    )
    QuotaDefault.objects.create(account_id=namespace.account_id, service="ai", quota_limit=Decimal(50))
    LedgerCheck.objects.create(finished_at=timezone.now(), seconds=1.5, entries=100, records=900, differences=0)
    NamespaceActivity.objects.create(
        account=namespace.account, namespace_id=namespace.pk, actor="ci key", action="quota_set",
        detail="The quota for workspaces was set to 120 credits.",
    )  # fmt: skip


def make_hooks(account: Account, namespace: Namespace, number: int) -> None:
    now = timezone.now()
    failing = {"failing_since": now - timedelta(hours=5), "last_status_code": 503} if number % 3 == 1 else {}
    hook = Subscription.objects.create(
        account=account, namespace_id=namespace.pk, namespace_slug=namespace.slug, host="hooks.example.com",
        url=f"https://hooks.example.com/{PLANTED}", secret=PLANTED, former_secret=PLANTED, events=["*"],
        last_triggered_at=now, **failing,
    )  # fmt: skip
    event = Event.objects.create(
        account=account, type="workspace.started", namespace_id=namespace.pk, data={"env": PLANTED}
    )
    delivery = Delivery.objects.create(
        subscription=hook, event=event, status="failed" if failing else "delivered", attempts=2, next_attempt_at=None,
        last_status_code=503 if failing else 200, last_error="The receiver answered 503." if failing else "",
    )  # fmt: skip
    Attempt.objects.create(
        subscription=hook, delivery=delivery, number=1, started_at=now, duration_ms=84, status_code=200
    )
    AuditEntry.objects.create(
        account=account, subscription_id=hook.pk, action="created", actor="ci key", detail="For all events."
    )


def make_site(account: Account, namespace: Namespace, box: Workspace, number: int) -> None:
    now = timezone.now()
    page = make_page(
        account, slug=f"shop-{number}-{next(_numbers)}", name="Shop", source_workspace_id=box.pk, kept_bytes=5 << 20,
        release=1, last_release=1, created_at=now,
    )  # fmt: skip
    make_release(page, files=42, bytes=5 << 20, actor="ci key")
    PageDeploy.objects.create(
        page=page, workspace_id=box.pk, path="/srv/site", state="succeeded", step="publish", attempt=1, release=1,
        deadline_at=now, finished_at=now, actor="ci key",
    )  # fmt: skip
    PageEvent.objects.create(account=account, page_id=page.pk, action="deployed", actor="ci key", detail="Release 1.")
    name = f"shop{next(_numbers)}.example.com"
    domain = CustomDomain.objects.create(
        account=account, name=name, target_kind="page", target_id=page.pk, proven_at=now
    )
    DomainName.objects.create(name=name, domain=domain)
    ca, _ = AcmeAccount.objects.get_or_create(directory="https://ca.example.com/directory", defaults={"key": PLANTED})
    is_broken = number % 4 == 3
    Certificate.objects.create(
        name=name, owner=account.pk, account=ca, status="failed" if is_broken else "active",
        error="The CA could not reach the name." if is_broken else "", chain="chain", key=PLANTED,
        order_key=PLANTED, not_before=now - timedelta(days=20), expires_at=now + timedelta(days=70),
        next_attempt_at=now + timedelta(days=40), due_at=now, challenge_token=PLANTED,
    )  # fmt: skip
    OrderAttempt.objects.create(name=name, owner=account.pk, began_at=now)


def make_files(account: Account, namespace: Namespace, number: int) -> None:
    now = timezone.now()
    for owner, kind, of in ((account.pk, "account", None), (namespace.pk, "namespace", namespace)):
        Pool.objects.create(
            owner=owner, kind=kind, account=account, namespace=of, month=f"{now:%Y-%m}", stored_bytes=3 << 30,
            stored_files=120, trashed_bytes=200 << 20, trashed_files=7, month_bytes=1 << 30, month_files=40,
        )  # fmt: skip
    file = File.objects.create(
        account=account, namespace=namespace, status="active", filename=f"photo-{number}.jpg", kind="image",
        content_type="image/jpeg", size=3 << 20, footprint=4 << 20, width=1600, height=900, actor="ci key",
        published_at=now, metadata={"note": PLANTED},
    )  # fmt: skip
    Permit.objects.create(
        file=file, token_hash=f"{PLANTED}{number}", size=3 << 20, reserved_bytes=0, expires_at=now, state="done"
    )
    FileEvent.objects.create(account=account, file_id=file.pk, action="published", actor="ci key")
    Template.objects.create(account=account, cdn_max_bytes=50 << 30)
    NamespaceQuota.objects.create(namespace=namespace, cdn_max_bytes=4 << 30)


def make_tokens(account: Account, namespace: Namespace, box: Workspace, number: int) -> None:
    now = timezone.now()
    token = SendToken.objects.create(
        account=account, workspace=box, name="alerts", metadata={"note": PLANTED},
        token_hash=keyed_hash(f"{PLANTED}{number}"), token_prefix=f"mvn_{number:04}", last_used_at=now,
    )  # fmt: skip
    Device.objects.create(
        account=account, device_id=f"phone-{number}", platform="ios", provider="fcm", address={"token": PLANTED},
        address_hash=f"{PLANTED}{number}",
    )  # fmt: skip
    Send.objects.create(
        account_id=account.pk, workspace_id=box.pk, token_id=token.pk, content={"title": PLANTED}, devices=3,
        last_device=3, claim=PLANTED,
    )  # fmt: skip
    NotificationEvent.objects.create(account=account, subject=str(token.pk), action="token_created", actor="ci key")
    key = ApiKey.objects.create(
        account=account, namespace=namespace, name="editor", key_hash=f"{PLANTED}{number}",
        key_prefix=f"mva_{number:04}", webhook_secret=PLANTED, last_used_at=now,
    )  # fmt: skip
    KeyEvent.objects.create(account=account, key_id=key.pk, action="created", actor="ci key")
    DayCount.objects.create(account=account, day=now.date(), used=17)
    soon = now + timedelta(minutes=1)
    Call.objects.create(account=account, namespace_id=namespace.pk, day=now.date(), expires_at=soon)


def make_trend(days: int = 7) -> None:
    """Hourly counts of the past, as the beat task would have taken them."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for back in range(1, days * 24):
        wave = abs((back % 24) - 12)
        counts = {"running": 12 + wave // 2, "sleeping": 8 - wave // 2, "stopped": 1 + back // 40, "failed": back % 3}
        at = hour - timedelta(hours=back)
        HourlySummary.objects.create(hour=at, taken_at=at + timedelta(minutes=59), counts=counts)


def rows_of_everything() -> dict[str, Any]:
    """For messages of failed tests: how many rows there are of each kind that has none."""
    from django.contrib import admin

    return {model._meta.label: model._default_manager.count() for model in admin.site._registry}
