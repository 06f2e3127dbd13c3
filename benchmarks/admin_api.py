"""The lists of the API for `benchmarks.admin`, as the account with the most workspaces reads them: up to a thousand."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

from django.utils import timezone

from benchmarks.admin_pages import busiest


def api_addresses() -> tuple[dict[str, str], dict[str, str]]:
    """Addresses by name, and the headers of a credential of the account."""
    from accounts.models import Account
    from accounts.scopes import Scope, ScopeBinding
    from accounts.services import credential_issue

    account = Account.objects.get(pk=busiest("accounts.Account"))
    made = credential_issue(account=account, name="bench", scope=Scope.ACCOUNT, binding=ScopeBinding())
    headers = {"X-Client-ID": made.credential.client_id, "X-Client-Secret": made.secret}
    return {f"API {name}": url for name, url in _addresses(account.pk).items()}, headers


def _addresses(account_id: str) -> dict[str, str]:
    from namespaces.models import Namespace
    from webhooks.models import Subscription
    from workspaces.models import Activity, Workspace

    boxes = Workspace.objects.filter(account=account_id, kind="workspace").order_by("pk")
    space = _most_of(Namespace.objects.filter(account=account_id), boxes.values_list("namespace_id", flat=True))
    activity = Activity.objects.filter(account=account_id).values_list("workspace_id", flat=True)
    box = _most_of(boxes, activity)
    hook = Subscription.objects.filter(account=account_id).order_by("pk").first()
    lists = {
        "workspaces": "/workspace", "sandboxes": "/sandbox", "namespaces": "/namespaces", "pages": "/pages",
        "files": "/cdn/files", "CDN namespaces": "/cdn/namespaces", "send tokens": "/notifications/tokens",
        "devices": "/notifications/devices", "API keys": "/api-keys", "webhooks": "/webhooks",
        "quotas": "/credits/namespaces", "activity of a namespace": f"/namespaces/{space}/activity",
    }  # fmt: skip
    if hook is not None:
        lists["deliveries"] = f"/webhooks/{hook.pk}/deliveries"
    return {**lists, **_with_queries(lists, space, box)}


def _with_queries(lists: dict[str, str], space: str, box: str) -> dict[str, str]:
    from namespaces.models import Namespace

    slug, now = Namespace.objects.get(pk=space).slug, timezone.now()
    day = urlencode({"from": (now - timedelta(days=30)).isoformat(), "to": (now - timedelta(days=20)).isoformat()})
    month = urlencode({"from": (now - timedelta(days=30)).isoformat(), "to": now.isoformat()})
    found = {
        "workspaces, second page": "/workspace?page=2",
        "workspaces that run": "/workspace?status=running",
        "workspaces of a namespace": f"/workspace?namespace={slug}",
        "workspaces, an id": f"/workspace?search={box}",
        "workspace": f"/workspace/{box}",
        "credits by hour": f"/workspace/{box}/usage/credits/chart",
        "usage of a workspace": f"/workspace/{box}/usage",
        "activity of a day": "/workspace/activity",
        "activity of ten days": f"/workspace/activity?{day}",
        "units of a month": f"/namespaces/{space}/usage-units?{month}",
        "credits of a namespace": f"/namespaces/{space}/usage",
        "quota": f"/credits/namespaces/{space}",
        "activity of a namespace, deep": f"/namespaces/{space}/activity?offset=200&limit=20",
    }
    if "deliveries" in lists:
        found["deliveries that failed"] = f"{lists['deliveries']}?status=failed"
        found["deliveries, second page"] = f"{lists['deliveries']}?page=2"
    return found


def _most_of(rows: object, references: object) -> str:
    from collections import Counter

    keys = set(rows.values_list("pk", flat=True))  # type: ignore[attr-defined]  # a queryset
    counts = Counter(key for key in references.iterator() if key in keys)  # type: ignore[attr-defined]
    return str(max(counts, key=lambda key: (counts[key], key)))
