"""`/metrics` and `/readyz`: what they show, who may read them, and what they cost."""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from common import counters
from config import health, metrics_page
from config.metrics_token import metrics_token
from credits.models import Balance, Entry, EntryKind, LedgerCheck, Service
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_host, make_workspace, renew_leases, snapshot_row
from tests.world import assert_error
from vmbackend.driver import BootTemplate
from vmbackend.errors import InvalidMachineState
from vmbackend.models import Host
from workspaces import counted
from workspaces.host.pool.demand import PoolShare
from workspaces.models import Operation, Snapshot, WarmMachine
from workspaces.models.operation import OperationKind
from workspaces.models.warm_machine import WarmState
from workspaces.states import Status

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_is_kept() -> None:
    metrics_page.TEXT.invalidate()
    health.PROBLEMS.invalidate()


def ask(token: str | None = None, method: str = "GET") -> Any:
    sent = metrics_token(settings.SECRET_KEY) if token is None else token
    return Client().generic(method, "/metrics", headers={"Authorization": f"Bearer {sent}"})


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples() -> Samples:
    """By name and labels. Parsed as Prometheus does, which refuses what is malformed or there twice."""
    metrics_page.TEXT.invalidate()
    answer = ask()
    assert answer.status_code == 200, answer.content
    found: Samples = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


@pytest.mark.parametrize("token", ["", "wrong", "é", "x" * 5000])
def test_without_the_token_nothing_is_shown(token: str) -> None:
    assert_error(ask(token), 401, "unauthorized")
    assert_error(Client().get("/metrics"), 401, "unauthorized")


def test_credentials_of_an_account_do_not_open_it(api: Caller) -> None:
    assert_error(api.get("/metrics"), 401, "unauthorized")


def test_other_methods_are_refused() -> None:
    assert_error(ask(method="POST"), 405, "method_not_allowed")


def test_another_secret_key_is_another_token() -> None:
    assert metrics_token("a") != metrics_token("b")
    assert settings.SECRET_KEY not in metrics_token(settings.SECRET_KEY)


def test_workspaces_and_hosts_are_shown_as_the_rows_have_them(api: Caller) -> None:
    host = make_host("one")
    Host.objects.filter(pk=host.pk).update(memory_mb=8192, disk_free_mb=100)
    make_host("two", seen=timezone.now() - timedelta(hours=1))
    applied = {"applied_cpu_millis": 1500, "applied_memory_mb": 1024}
    running = make_workspace(api.account, host=host, status=Status.RUNNING, memory_mb=2048, **applied)
    stopped = make_workspace(api.account, status=Status.STOPPED)
    make_workspace(api.account, status=Status.DESTROYED)
    found = samples()
    assert value(found, "mvm_workspaces", status="running") == value(found, "mvm_workspaces", status="stopped") == 1
    assert value(found, "mvm_running_resources", kind="cpus") == 1.5
    assert value(found, "mvm_running_resources", kind="memory_bytes") == 1 << 30
    owned = (running, stopped)
    assert value(found, "mvm_owned_resources", kind="cpus") == sum(row.cpu_millis for row in owned) / 1000
    assert value(found, "mvm_owned_resources", kind="memory_bytes") == sum(row.memory_mb << 20 for row in owned)
    assert value(found, "mvm_owned_resources", kind="disk_bytes") == sum(row.disk_size_mb << 20 for row in owned)
    assert (value(found, "mvm_host_up", host="one"), value(found, "mvm_host_up", host="two")) == (1, 0)
    assert value(found, "mvm_host_lease_age_seconds", host="two") >= 3600
    shown = {state: value(found, "mvm_host_state", host="two", state=state) for state in ("active", "unreachable")}
    assert shown == {"active": 0, "unreachable": 1}
    assert value(found, "mvm_control_plane_fault", host="two") == 0
    assert value(found, "mvm_host_disk_free_bytes", host="one") == 100 << 20
    assert value(found, "mvm_redis_up") == 1


def test_templates_and_the_warm_pool_are_shown_as_the_host_reports_them() -> None:
    host = make_host("one")
    make_host("two")
    small = BootTemplate(cpus=1, memory_mb=512, size_bytes=70, made_at=0, loads=9, failures=2)
    large = BootTemplate(cpus=2, memory_mb=4096, size_bytes=90, made_at=0, loads=1)
    shares = [PoolShare(f"image:{number}", 1000, 512, 512, 3, 1, 5, number) for number in range(3)]
    host.templates, host.pool = [asdict(small), asdict(large)], [asdict(each) for each in shares]
    host.save()
    shape = {"image": "image:1", "cpu_millis": 1000, "memory_mb": 512, "disk_size_mb": 512}
    for number, state in enumerate(("making", "ready", "ready"), 2):
        WarmMachine.objects.create(host=host, ip=f"10.0.0.{number}", state=state, claim="a", **shape)
    found = samples()
    assert value(found, "mvm_host_templates", host="one") == 2
    assert value(found, "mvm_host_template_bytes", host="one") == 160
    assert value(found, "mvm_host_template_loads", host="one", outcome="succeeded") == 8
    assert value(found, "mvm_host_template_loads", host="one", outcome="failed") == 2
    assert value(found, "mvm_host_pool_wanted", host="one") == 9
    assert value(found, "mvm_host_pool_creates", host="one", outcome="claimed") == 15
    assert value(found, "mvm_host_pool_creates", host="one", outcome="missed") == 3
    machines = {state: value(found, "mvm_host_pool_machines", host="one", state=state) for state in WarmState.values}
    assert machines == {"making": 1, "ready": 2, "retiring": 0}
    assert found[("mvm_host_pool_machines", frozenset({("host", "two"), ("state", "ready")}))] == 0


def test_snapshots_are_shown_by_status_until_they_are_deleted(api: Caller) -> None:
    row = make_workspace(api.account, host=make_host())
    made = [snapshot_row(row, size_bytes=100), snapshot_row(row, size_bytes=20)]
    made += [snapshot_row(row, status="creating", size_bytes=0), snapshot_row(row, deleted_at=timezone.now())]
    Snapshot.objects.bulk_create(made)
    found = samples()
    assert value(found, "mvm_snapshots", status="ready") == 2
    assert value(found, "mvm_snapshots", status="creating") == 1
    assert value(found, "mvm_snapshot_bytes", status="ready") == 120


def test_an_operation_that_waits_is_shown_with_its_age(api: Caller) -> None:
    row = make_workspace(api.account, host=make_host())
    made = Operation.objects.create(
        workspace=row,
        kind=OperationKind.START,
        queue="host.local",
        created_at=timezone.now() - timedelta(minutes=5),
        deadline_at=timezone.now() + timedelta(minutes=5),
    )
    found = samples()
    assert value(found, "mvm_operations_live", queue="host.local", state="queued") == 1
    assert value(found, "mvm_operation_oldest_seconds", queue="host.local", state="queued") >= 300
    made.delete()
    assert value(samples(), "mvm_operations_live", queue="host.local", state="queued") == 0


def test_a_ledger_that_was_never_checked_is_as_old_as_its_first_entry(api: Caller) -> None:
    """Where nothing runs at night there is no check at all: the alert fires for it, too."""
    assert ("mvm_ledger_check_age_seconds", frozenset()) not in samples()
    balance = Balance.objects.create(account_id=api.account.pk, namespace_id="ns_x", service=Service.SANDBOX)
    before = timezone.now() - timedelta(days=3)
    Entry.objects.create(balance=balance, kind=EntryKind.CHARGE, amount=1, balance_after=1, created_at=before)
    assert value(samples(), "mvm_ledger_check_age_seconds") > 2 * 86400
    LedgerCheck.objects.create(started_at=before, finished_at=timezone.now(), differences=0)
    assert value(samples(), "mvm_ledger_check_age_seconds") < 60


@pytest.mark.django_db(transaction=True)
def test_operations_are_counted_by_kind_and_outcome_when_they_end(api: Caller, vmhost: FakeHost) -> None:
    kind = {"kind": "create"}
    before = samples()
    vmhost.driver.fail_next("create", InvalidMachineState("The backend says no."))
    for _ in range(2):
        api.post("/workspace", {"wait_ready": False})
        vmhost.settle()
    ended, now = Operation.objects.filter(kind="create", finished_at__isnull=False).count(), samples()
    grown = {
        outcome: value(now, "mvm_operations_total", outcome=outcome, **kind)
        - value(before, "mvm_operations_total", outcome=outcome, **kind)
        for outcome in ("succeeded", "failed")
    }
    assert sum(grown.values()) == ended == 2
    seconds = value(now, "mvm_operation_seconds_count", **kind) - value(before, "mvm_operation_seconds_count", **kind)
    assert seconds == 2
    assert value(now, "mvm_operation_seconds_bucket", le="+Inf", **kind) == value(
        now, "mvm_operation_seconds_count", **kind
    )


def test_buckets_of_a_histogram_are_cumulative() -> None:
    before = samples()
    for seconds in (0.1, 3, 3, 10_000):
        counters.record_additions(counted.OPERATION_SECONDS.of(seconds, "stop"))
    now = samples()

    def grown(le: str) -> float:
        name = "mvm_operation_seconds_bucket"
        return value(now, name, kind="stop", le=le) - value(before, name, kind="stop", le=le)

    assert [grown(le) for le in ("0.25", "2.0", "5.0", "900.0", "+Inf")] == [1, 1, 3, 3, 4]


def test_many_rows_cost_as_many_queries_as_few(api: Caller) -> None:
    host = make_host()

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            samples()
        return len(captured)

    few = queries()
    for _ in range(5):
        make_workspace(api.account, host=host, status=Status.RUNNING)
    make_host("another")
    assert queries() == few


def test_asked_often_it_asks_the_database_once() -> None:
    ask()
    with CaptureQueriesContext(connection) as captured:
        for _ in range(20):
            assert ask().status_code == 200
    assert len(captured) == 0


@pytest.fixture
def no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", "unix:///nonexistent/redis.sock")


@pytest.mark.usefixtures("no_redis")
def test_without_redis_the_rest_is_shown_and_nothing_is_counted() -> None:
    counters.record_additions(counted.OPERATIONS_ENDED.of(1, "create", "succeeded"))
    found = samples()
    assert found[("mvm_redis_up", frozenset())] == 0
    assert ("mvm_charge_lag_seconds", frozenset()) in found


def ready() -> tuple[int, dict[str, bool]]:
    health.PROBLEMS.invalidate()
    answer = Client().get("/readyz")
    body = answer.json()
    assert set(body) == {"success", "ready", "checks"}
    assert body["success"] is body["ready"] is (answer.status_code == 200)
    assert all(check["message"] for check in body["checks"].values())
    return answer.status_code, {name: check["ok"] for name, check in body["checks"].items()}


def test_it_is_ready_with_database_redis_a_host_and_room() -> None:
    make_host()
    assert ready() == (200, {"database": True, "redis": True, "hosts": True, "disk": True})


def test_it_is_not_ready_without_a_host_that_reports() -> None:
    make_host(seen=timezone.now() - timedelta(minutes=5))
    assert ready() == (503, {"database": True, "redis": True, "hosts": False, "disk": True})
    Host.objects.update(problem="libvirt does not answer")
    renew_leases()
    assert ready()[1]["hosts"] is False


@pytest.mark.usefixtures("no_redis")
def test_it_is_not_ready_without_redis() -> None:
    make_host()
    assert ready() == (503, {"database": True, "redis": False, "hosts": True, "disk": True})


def test_it_is_not_ready_with_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    make_host()
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, health.LEAST_FREE_BYTES - 1))
    assert ready() == (503, {"database": True, "redis": True, "hosts": True, "disk": False})


def test_it_is_not_ready_without_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*args: Any, **more: Any) -> Any:
        raise DatabaseError("gone")

    make_host()
    monkeypatch.setattr(BaseDatabaseWrapper, "cursor", gone)
    assert ready() == (503, {"database": False, "redis": True, "hosts": False, "disk": True})


def test_asked_often_it_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    make_host()
    ready()
    with CaptureQueriesContext(connection) as captured:
        assert {Client().get("/readyz").status_code for _ in range(20)} == {200}
    assert len(captured) == 0
