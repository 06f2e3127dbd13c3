"""Activity of namespaces and workspaces is kept for PLATFORM_ACTIVITY_DAYS, and then removed in batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from common import retention
from namespaces import tasks as namespace_tasks
from namespaces.models import Namespace, NamespaceActivity
from tests.callers import Caller
from workspaces import tasks as workspace_tasks
from workspaces.models import Activity

pytestmark = pytest.mark.django_db

KINDS: dict[str, tuple[Any, Any, str]] = {
    "namespaces": (NamespaceActivity, namespace_tasks.prune_activity, "created_at"),
    "workspaces": (Activity, workspace_tasks.prune_activity, "at"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_older_than_it_is_kept_for_is_removed(api: Caller, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, prune, column = KINDS[kind]
    model.objects.all().delete()
    monkeypatch.setattr(retention, "BATCH", 2)
    namespace, now = Namespace.objects.get(account=api.account), timezone.now()
    of = {"namespace_id": namespace.pk} if kind == "namespaces" else {"workspace_id": "ws_1"}
    for age in (500, 450, 420, 401, 399, 1, 0):
        row = model.objects.create(account=api.account, **of)
        model.objects.filter(pk=row.pk).update(**{column: now - timedelta(days=age)})
    assert settings.ENV.activity_days == 400
    assert [prune() for _ in range(2)] == [4, 0]
    assert model.objects.count() == 3


def test_one_call_removes_some_batches(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "MAX_BATCHES", 2)
    Activity.objects.all().delete()
    for _ in range(5):
        Activity.objects.create(account=api.account, workspace_id="ws_1", at=timezone.now() - timedelta(days=500))
    assert [workspace_tasks.prune_activity() for _ in range(3)] == [4, 1, 0]
