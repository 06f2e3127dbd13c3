"""The alerts and the dashboard of `deploy/`: each alert fires when it should, and all name only what `/metrics` has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.utils import timezone

from accounts.models import Account
from certificates.models import Certificate
from common import counters
from credits.models import LedgerCheck
from tests.callers import Caller
from tests.common.test_metrics import samples
from tests.workspaces.rows import make_host, make_workspace, snapshot_row
from workspaces import counted
from workspaces.models import Operation

DEPLOY = Path(settings.ROOT) / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
NAME = re.compile(r"\bmvm_[a-z_]+\b")
# A series in a query, and what it asks of its labels.
SERIES = re.compile(r"\b(mvm_[a-z_]+)(?:{([^}]*)})?")
MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')
GROUPED = re.compile(r"\bby \(([^)]*)\)")

# For each alert: a series, a value at which it fires, one at which it is quiet, after how many minutes, and its labels.
FIRED: dict[str, tuple[str, str, str, int, dict[str, str]]] = {
    "PlatformUnreachable": ('up{job="mvm", instance="a"}', "0", "1", 3, {"job": "mvm", "instance": "a"}),
    "RedisDown": ("mvm_redis_up", "0", "1", 3, {}),
    "HostDown": ('mvm_host_up{host="one"}', "0", "1", 3, {"host": "one"}),
    "HostUnreachable": (
        'mvm_host_state{host="one", state="unreachable"}', "1", "0", 2, {"host": "one", "state": "unreachable"},
    ),
    "ControlPlaneFault": ('mvm_control_plane_fault{host="one"}', "1", "0", 2, {}),
    "DrainStuck": ('mvm_drain_refused{host="one"}', "2", "0", 16, {"host": "one"}),
    "OperationsWait": (
        'mvm_operation_oldest_seconds{queue="host.one", state="queued"}', "301", "200", 6, {"queue": "host.one"},
    ),
    "OperationsFail": ('mvm_operations_total{kind="create", outcome="failed"}', "0+1", "3+0", 30, {}),
    "NoRoomForMachines": ('mvm_host_memory_room_bytes{host="one"}', "1000", "2000000000", 11, {}),
    "HostDiskLow": ('mvm_host_disk_free_bytes{host="one"}', "1000", "20000000000", 11, {"host": "one"}),
    "WebhooksLate": ("mvm_webhook_deliveries_pending_oldest_seconds", "601", "10", 11, {}),
    "ChargesLate": ("mvm_charge_lag_seconds", "901", "60", 11, {}),
    "LedgerDiffers": ("mvm_ledger_check_differences", "2", "0", 1, {}),
    "LedgerCheckMissing": ("mvm_ledger_check_age_seconds", "172801", "80000", 61, {}),
    "CertificateExpires": ("mvm_certificate_expiry_seconds", "600000", "6000000", 61, {}),
    "UploadsNotLookedAt": ("mvm_cdn_files_processing_oldest_seconds", "901", "5", 11, {}),
}  # fmt: skip


def rules() -> dict[str, Any]:
    found = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    return {rule["alert"]: rule for rule in found}


def filled(text: str, labels: dict[str, str], value: str) -> str:
    for name, of_label in labels.items():
        text = text.replace("{{ $labels." + name + " }}", of_label)
    return text.replace("{{ $value }}", value)


def unit_test(name: str, series: str, values: str, minutes: int, expected: list[Any]) -> dict[str, Any]:
    sign = "" if "+" in values else "+0"
    # Where an alert needs another series beside its own.
    others = [{"series": 'mvm_host_state{host="one", state="active"}', "values": "1+0x100"}]
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": f"{values}{sign}x100"}, *others],
        "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": expected}],
    }


def test_each_alert_fires_and_is_quiet_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert set(FIRED) == set(rules())
    tests = []
    for name, (series, bad, good, minutes, labels) in FIRED.items():
        rule = rules()[name]
        notes = {key: filled(text, labels, bad) for key, text in rule["annotations"].items()}
        alert = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": notes}
        tests.append(unit_test(name, series, bad, minutes, [alert]))
        tests.append(unit_test(name, series, good, minutes, []))
    file = tmp_path / "alerts_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool = shutil.which("promtool")
    assert promtool, "Debian's package prometheus has it"
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


Series = tuple[str, dict[str, str]]


@pytest.fixture
def series(api: Caller) -> list[Series]:
    """All that `/metrics` has where there is one of everything."""
    host, now = make_host(), timezone.now()
    row = make_workspace(api.account, host=host)
    snapshot_row(row).save()
    Operation.objects.create(workspace=row, kind="start", queue=host.queue, deadline_at=now)
    LedgerCheck.objects.create(differences=0, finished_at=now)
    _certificate(api.account)
    counters.record_additions(
        counted.OPERATIONS_ENDED.of(1, "start", "failed")
        + counted.OPERATION_SECONDS.of(1, "start")
        + counted.OPERATION_RETRIES.of(1, "start")
    )
    counters.record_additions(counted.CORRECTIONS.of(1, "orphan") + counted.HOST_DRIFTS.of(1, "repaired"))
    counters.record_additions(counted.MOVES_ENDED.of(1, "committed"))
    return [(name, dict(labels)) for name, labels in samples()]


@pytest.fixture
def names(series: list[Series]) -> set[str]:
    return {name for name, _ in series}


def _certificate(account: Account) -> None:
    later = timezone.now() + timedelta(days=9)
    Certificate.objects.create(
        name="a.example.org", owner=account.pk, next_attempt_at=later, due_at=later, not_before=timezone.now(),
        expires_at=later, chain="x", key="y", issued_by="z", status="active",
    )  # fmt: skip


def queries() -> list[tuple[str, str]]:
    """Each query of the dashboard and the alerts, with the texts that name its labels."""
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    shown = [(target["expr"], target["legendFormat"]) for target in targets]
    return shown + [(rule["expr"], " ".join(rule["annotations"].values())) for rule in rules().values()]


@pytest.mark.django_db
def test_alerts_and_dashboard_name_only_what_there_is(names: set[str]) -> None:
    assert {name for query, _ in queries() for name in NAME.findall(query)} - names == set()


@pytest.mark.django_db
def test_they_ask_only_for_labels_that_the_series_have(series: list[Series]) -> None:
    """A selector, a grouping or a text with another label finds nothing, and an alert with it never fires."""
    for query, text in queries():
        for name, asked in SERIES.findall(query):
            found = [labels for one, labels in series if one == name]
            for label, operator, value in MATCHER.findall(asked):
                wanted = value.split("|") if operator == "=~" else [value]
                found = [labels for labels in found if labels.get(label) in wanted]
            assert found, (name, asked)
            grouped = {label.strip() for labels in GROUPED.findall(query) for label in labels.split(",")}
            texts = set(re.findall(r"{{ ?\$?(?:labels\.)?(\w+) ?}}", text)) - {"value"}
            assert grouped | texts <= set(found[0]), (query, text)


@pytest.mark.django_db
def test_the_dashboard_shows_every_metric(names: set[str]) -> None:
    text = (DEPLOY / "grafana" / "dashboard.json").read_text() + ALERTS.read_text()
    shown = set(NAME.findall(text))
    assert {re.sub(r"_(bucket|count|sum|created)$", "_bucket", name) for name in names} - shown == set()


def test_the_process_that_shows_counters_knows_all_of_them() -> None:
    """The api does not load what vmhost and the worker count in."""
    code = (
        "import django; django.setup(); import config.urls; from config import metrics_page as page;"
        "list(page._counters()); print(*[one.name for one in page.counters.declared_metrics()])"
    )
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=settings.ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {"mvm_operations", "mvm_operation_seconds", "mvm_operation_retries", "mvm_reconcile", "mvm_host_drifts"}
    assert names <= set(done.stdout.split())
