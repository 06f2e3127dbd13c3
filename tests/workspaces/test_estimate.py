"""`GET /workspace/estimate`: what a size costs in an hour, and whether one could be created."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Plan
from credits.models import Rate, Unit
from tests.callers import Caller
from tests.workspaces.rows import make_host, make_workspace
from tests.world import assert_error
from vmbackend.models import Host
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db

SIZE = {"cpu": "1.5", "ram_mb": "2048", "disk_mb": "4096"}


@pytest.fixture(autouse=True)
def host() -> Host:
    return make_host()


def estimate(api: Caller, **size: str) -> Any:
    query = "&".join(f"{name}={value}" for name, value in (SIZE | size).items())
    return api.get(f"/workspace/estimate?{query}")


def found(api: Caller, **size: str) -> dict[str, Any]:
    answer = estimate(api, **size)
    assert answer.status_code == 200, answer.content
    assert set(answer.json()) == {"success", "estimate"}
    shown: dict[str, Any] = answer.json()["estimate"]
    assert set(shown) == {"credits_per_hour", "available"}
    return shown


def test_an_hour_costs_the_cpus_and_the_memory_by_the_rates_of_now(api: Caller) -> None:
    Rate.objects.all().delete()
    now = timezone.now()
    for unit, credits in ((Unit.VCPU_HOUR, "2"), (Unit.GB_HOUR, "0.5"), (Unit.DISK_GB, "7"), (Unit.NETWORK_GB, "9")):
        Rate.objects.create(unit=unit, credits=Decimal(credits), effective_from=now)
    assert found(api)["credits_per_hour"] == 1.5 * 2 + 2 * 0.5


def test_without_rates_it_costs_nothing(api: Caller) -> None:
    Rate.objects.all().delete()
    assert found(api) == {"credits_per_hour": 0, "available": True}


@pytest.mark.parametrize("limit", ["cpus", "pool_memory_mb", "running_disk_size_mb", "max_workspaces"])
def test_what_a_create_would_be_refused_for_is_not_available(api: Caller, limit: str) -> None:
    assert found(api)["available"] is True
    make_workspace(api.account)
    Plan.objects.filter(pk=api.account.plan_id).update(**{limit: 1})
    assert found(api)["available"] is False


@pytest.mark.parametrize(
    "change", [{"memory_mb": 1024}, {"disk_free_mb": 4095}, {"state": "draining"}, {"problem": "unreachable"}]
)
def test_it_is_not_available_without_a_host_that_has_room(api: Caller, host: Host, change: dict[str, Any]) -> None:
    Host.objects.filter(pk=host.pk).update(**change)
    assert found(api)["available"] is False


@pytest.mark.parametrize(
    ("name", "value"),
    [("cpu", "0.05"), ("cpu", "13"), ("cpu", "nan"), ("cpu", "inf"), ("cpu", "1.2345"), ("ram_mb", "127"),
     ("ram_mb", "1e9"), ("ram_mb", " "), ("disk_mb", "63"), ("disk_mb", "1048577"), ("disk_mb", "9" * 5000)],
)  # fmt: skip
def test_a_size_out_of_range_is_refused_by_its_field(api: Caller, name: str, value: str) -> None:
    answer = estimate(api, **{name: value})
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {name}


@pytest.mark.parametrize("name", SIZE)
def test_what_is_left_out_is_as_in_a_create(api: Caller, name: str) -> None:
    sizes = {"cpu": "1", "ram_mb": "512", "disk_mb": "512", name: SIZE[name]}
    assert api.get(f"/workspace/estimate?{name}={SIZE[name]}").json()["estimate"] == found(api, **sizes)


def test_one_of_the_three_is_needed(api: Caller) -> None:
    answer = api.get("/workspace/estimate")
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == set(SIZE)


def test_it_makes_nothing_and_costs_as_many_queries_with_many_workspaces(api: Caller) -> None:
    found(api)
    with CaptureQueriesContext(connection) as few:
        found(api)
    for _ in range(5):
        make_workspace(api.account)
    with CaptureQueriesContext(connection) as many:
        found(api)
    assert len(few) == len(many)
    assert Workspace.objects.count() == 5
