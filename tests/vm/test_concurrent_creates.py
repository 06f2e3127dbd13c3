"""Concurrent create requests."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.vm.client import Api
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
REQUESTS = 100


def test_a_hundred_creates_with_one_key_make_one_machine(instance: TestInstance, api: Api) -> None:
    rows, machines = {row["id"] for row in api.rows()}, machine_pids(instance).keys()
    body = {"image": BUSYBOX, "memory_mb": 128, "disk_size_mb": 64, "name": "once"}

    def create(_: int) -> httpx.Response:
        return api.http.post("/workspace", json=body, headers={"Idempotency-Key": f"once-{instance.id}"})

    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = list(pool.map(create, range(REQUESTS)))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) <= {200, 201, 202}, statuses
    made = {answer.json()["workspace"]["id"] for answer in answers}
    assert len(made) == 1
    replayed = [answer for answer in answers if answer.headers.get("Idempotent-Replay") == "true"]
    assert len(replayed) == REQUESTS - 1
    api.reaches(made.copy().pop(), "running")
    assert {row["id"] for row in api.rows()} - rows == made
    assert machine_pids(instance).keys() - machines == made
    sql = f"SELECT kind, attempt FROM workspaces_operation WHERE workspace_id = '{made.pop()}'"
    assert instance.query(sql) == [("create", 1)]
    assert Counter(answer.status_code for answer in answers if "Idempotent-Replay" not in answer.headers).total() == 1
