"""Audit logs of all apps: one writer, and one task that removes what is older than it is kept for."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from accounts.audit import AccountEvent, audit_entry, audit_models, record_entries, record_entry
from accounts.tasks import prune_audit_logs
from common import retention
from common.request_origin import RequestOrigin
from tests.callers import Caller

pytestmark = pytest.mark.django_db
MODELS = {model._meta.label_lower: model for model in audit_models()}


def test_each_app_with_a_log_is_here() -> None:
    apps = {"assist", "cdn", "namespaces", "notifications", "pages", "sandboxes", "webhooks", "workspaces"}
    assert apps <= {label.partition(".")[0] for label in MODELS}


@pytest.mark.parametrize("label", MODELS)
def test_an_entry_says_who_did_what_to_which_and_from_where(
    label: str, api: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    model = MODELS[label]
    origin = RequestOrigin("203.0.113.9", "curl/8")
    with caplog.at_level("INFO"):
        made = audit_entry(model, api.account.pk, "some_id", "changed", "d" * 600, actor="a" * 200, origin=origin)
        record_entry(made)
    row = model._default_manager.get(pk=made.pk)
    assert (row.account_id, getattr(row, model.subject_field), row.action) == (api.account.pk, "some_id", "changed")
    assert (row.actor, row.detail) == ("a" * 160, "d" * 500)
    assert (row.ip_address, row.user_agent) == ("203.0.113.9", "curl/8")
    assert str(row) == "changed some_id"
    logged = [record for record in caplog.records if record.name == f"{model._meta.app_label}.activity"]
    assert [record.getMessage().startswith("some_id changed by aaa") for record in logged] == [True]


@pytest.mark.parametrize("label", MODELS)
def test_what_is_older_than_it_is_kept_for_is_removed(label: str, api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[label]
    monkeypatch.setattr(retention, "BATCH", 2)
    make_aged(model, api, 500, 450, 420, 401, 399, 1, 0)
    assert settings.ENV.activity_days == 400
    assert [prune_audit_logs() for _ in range(2)] == [4, 0]
    assert model._default_manager.filter(action="aged").count() == 3


def test_one_call_removes_some_batches(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "MAX_BATCHES", 2)
    make_aged(MODELS["workspaces.activity"], api, *[500] * 5)
    assert [prune_audit_logs() for _ in range(3)] == [4, 1, 0]


def make_aged(model: type[AccountEvent], api: Caller, *days: int) -> None:
    now = timezone.now()
    entries = [audit_entry(model, api.account.pk, "some_id", "aged") for _ in days]
    for entry, age in zip(entries, days, strict=True):
        entry.created_at = now - timedelta(days=age)
    record_entries(entries)
