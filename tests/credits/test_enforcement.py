"""Requests that cost credits, in each zone of the quota (wire contract, sections 1 and 7)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from credits import ledger
from credits.entries import Purpose
from credits.models import Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.world import assert_error

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = {"config": {"cpus": 0.1, "memory_mb": 128, "disk_size_mb": 64}}
HEADER = "X-Credit-Warning"


def spend(api: Caller, amount: str, service: Service = Service.SANDBOX) -> None:
    namespace = Namespace.objects.get(account=api.account)
    ledger.credits_charge(namespace=namespace, service=service, amount=Decimal(amount), purpose=Purpose())


def set_quota(api: Caller, **fields: object) -> None:
    body = {"namespace": "default", "service": "sandbox", "quotaLimit": 10, "overdraft": 5, **fields}
    assert api.post("/credits/namespace-quota", body).status_code == 200


def test_the_overdraft_warns_on_each_request_that_costs(api: Caller, vmhost: FakeHost) -> None:
    set_quota(api)
    spend(api, "10")
    made = api.post("/workspace", SMALL)
    assert made.status_code == 201
    assert HEADER not in made.headers
    spend(api, "0.5")
    path = f"/workspace/{made.json()['workspace']['id']}"
    shown = [api.post("/workspace", SMALL), api.post(f"{path}/restart"), api.post(f"{path}/stop")]
    shown.append(api.post(f"{path}/start"))
    expected = "overdraft; service=sandbox; used=10.5; limit=10"
    assert [answer.headers.get(HEADER) for answer in shown] == [expected, expected, None, expected]
    assert HEADER not in api.get(path).headers, "a header is of its request alone"


def test_the_hard_block_refuses_creates_and_starts_with_what_is_used_up(api: Caller, vmhost: FakeHost) -> None:
    set_quota(api)
    key = api.post("/workspace", SMALL).json()["workspace"]["id"]
    stopped = api.post("/workspace", SMALL).json()["workspace"]["id"]
    api.post(f"/workspace/{stopped}/stop")
    spend(api, "15.00000001")
    details = {
        "namespace": "default",
        "service": "sandbox",
        "quota_used": 15.00000001,
        "held": 0,
        "quota_limit": 10,
        "overdraft": 5,
    }
    for answer in (
        api.post("/workspace", SMALL),
        api.post(f"/workspace/{stopped}/start"),
        api.post(f"/workspace/{key}/restart"),
    ):
        assert_error(answer, 402, "quota_exceeded")
        assert answer.json()["details"] == details
    assert api.get(f"/workspace/{key}").json()["workspace"]["info"]["status"] == "running", "`block` stops nothing"
    set_quota(api, quotaLimit=20)
    assert api.post(f"/workspace/{stopped}/start").status_code == 200


def test_a_quota_of_another_service_refuses_no_workspaces(api: Caller, vmhost: FakeHost) -> None:
    set_quota(api, service="ai", quotaLimit=0, overdraft=0)
    spend(api, "1", Service.AI)
    assert api.post("/workspace", SMALL).status_code == 201
    set_quota(api, service="ai", quotaLimit=0, overdraft=0, onOverdraftAction="stop_workspaces")
    answer = api.post("/workspace", SMALL)
    assert_error(answer, 402, "quota_exceeded")
    assert answer.json()["details"]["service"] == "ai"
