"""Lists that are too long are refused by their length, before their items are looked at."""

from __future__ import annotations

from typing import Any

import pytest

from common.fields import StrictInteger
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.network.serializers import Entry
from workspaces.workload_changes.serializers import WorkloadRequest

pytestmark = pytest.mark.django_db
MANY = 1000


@pytest.mark.parametrize("field", ["egress", "ingress", "egress_ports", "ingress_ports"])
def test_no_item_of_a_long_list_of_the_network_is_checked(
    api: Caller, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    for kind in (Entry, StrictInteger):
        monkeypatch.setattr(kind, "to_internal_value", never)
    row = make_workspace(api.account)
    answer = api.put(f"/workspace/{row.pk}/network", {field: ["x"] * MANY})
    assert (answer.status_code, list(answer.json()["details"])) == (400, [field])


def test_no_item_of_a_long_list_of_workloads_is_checked(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkloadRequest, "to_internal_value", never)
    answer = api.post("/workspace", {"config": {"workloads": [{}] * MANY}})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_CONFIG")
    assert list(answer.json()["details"]) == ["workloads"]


def never(*args: Any) -> Any:
    raise AssertionError("an item was checked")
