"""What `POST /workspace` refuses as wrong, and workloads (specification, Workspace create config object)."""

from __future__ import annotations

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.world import assert_error
from vmbackend.backend import machines_dir
from vmbackend.fake.store import FakeStore
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"namespace": "no spaces"}, 400, "INVALID_NAMESPACE"),
        ({"namespace": 7}, 400, "INVALID_NAMESPACE"),
        ({"name": "x" * 256}, 400, "INVALID_NAME_LENGTH"),
        ({"image": ""}, 400, "INVALID_IMAGE"),
        ({"image": 5}, 400, "INVALID_IMAGE"),
        ({"image": None}, 400, "INVALID_IMAGE"),
        ({"image": "--config=/etc/passwd"}, 400, "INVALID_IMAGE"),
        ({"config": []}, 400, "INVALID_CONFIG"),
        ({"config": None}, 400, "INVALID_CONFIG"),
        ({"config": {"cpus": "2"}}, 400, "INVALID_CONFIG"),
        ({"config": {"cpus": 0.05}}, 400, "INVALID_CONFIG"),
        ({"config": {"cpus": 13}}, 400, "INVALID_CONFIG"),
        ({"config": {"memory_mb": 127}}, 400, "INVALID_CONFIG"),
        ({"config": {"memory_mb": 512.5}}, 400, "INVALID_CONFIG"),
        ({"config": {"disk_size_mb": True}}, 400, "INVALID_CONFIG"),
        ({"config": {"ttl": "soon"}}, 400, "INVALID_CONFIG"),
        ({"config": {"ttl": 0}}, 400, "INVALID_CONFIG"),
        ({"config": {"ttl": -5}}, 400, "INVALID_CONFIG"),
        ({"config": {"ttl": "0s"}}, 400, "INVALID_CONFIG"),
        ({"config": {"ttl_action": "explode"}}, 400, "INVALID_CONFIG"),
        ({"config": {"restart_policy": 1}}, 400, "INVALID_CONFIG"),
        ({"config": {"env": {"A": "b"}}}, 400, "INVALID_CONFIG"),
        ({"config": {"env": ["NOVALUE"]}}, 400, "INVALID_CONFIG"),
        ({"config": {"env": [{"key": "1A", "value": "x"}]}}, 400, "INVALID_CONFIG"),
        ({"config": {"cmd": [1]}}, 400, "INVALID_CONFIG"),
        ({"config": {"workloads": [{"name": "a"}]}}, 400, "INVALID_CONFIG"),
        ({"config": {"macos": {}}}, 400, "INVALID_CONFIG"),
        ({"config": {"desktop": {"enabled": True}}}, 400, "INVALID_CONFIG"),
        ({"config": {"proxy_assignment_id": 3}}, 400, "INVALID_CONFIG"),
        ({"config": {"image": "debian:12"}}, 400, "INVALID_CONFIG"),
        ({"image": "debian:12", "config": {"image": "debian:12"}}, 400, "INVALID_CONFIG"),
        ({"mode": "permanent", "config": {"ttl": "1h"}}, 400, "INVALID_CONFIG"),
        ({"config": {"cpus": 12}}, 403, "RESOURCE_NOT_ALLOWED"),
        ({"slug": "No"}, 400, "validation_error"),
        ({"slug": "x" * 129}, 400, "validation_error"),
        ({"mode": "eternal"}, 400, "validation_error"),
        ({"wait_ready": "yes"}, 400, "validation_error"),
        ({"ready_timeout_seconds": 601}, 400, "validation_error"),
        ({"namespace": "missing"}, 404, "not_found"),
        ("{broken", 400, "invalid_json"),
        ('{"name": "\\u0000"}', 400, "validation_error"),
        ('{"name": NaN}', 400, "invalid_json"),
        ("[1]", 400, "validation_error"),
        ("[" * 100_000, 400, "invalid_json"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(
    api: Caller, vmhost: FakeHost, body: object, status: int, code: str
) -> None:
    answer = api.post("/workspace", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["success"] is False
    assert not Workspace.objects.exists()


def test_sizes_beside_the_config_are_named_as_they_were_sent(api: Caller) -> None:
    sent = {"vcpus": "2", "ram_mb": 1, "disk_size_mb": 1}
    answer = api.post("/workspace", sent)
    assert_error(answer, 400, "INVALID_CONFIG")
    assert set(answer.json()["details"]) == {"vcpus", "ram_mb", "disk_size_mb"}
    inside = api.post("/workspace", {**sent, "config": {"cpus": 0, "memory_mb": 0, "disk_size_mb": 0}})
    assert set(inside.json()["details"]) == {"cpus", "memory_mb", "disk_size_mb"}


def test_a_wrong_config_value_is_named(api: Caller, vmhost: FakeHost) -> None:
    details = api.post("/workspace", {"config": {"cpus": "2", "env": ["X"]}}).json()["details"]
    assert set(details) == {"cpus", "env"}


def test_an_image_inside_the_config_is_named_and_said_where_it_belongs(api: Caller, vmhost: FakeHost) -> None:
    body = api.post("/workspace", {"config": {"image": "debian:12"}}).json()
    assert body["details"] == {"image": ["Give the image beside config, not in it."]}


WORKLOAD = {"name": "web", "cmd": ["sleep", "9"]}


@pytest.mark.parametrize(
    "workloads",
    [
        [{**WORKLOAD, "name": ""}],
        [{**WORKLOAD, "name": "-web"}],
        [{**WORKLOAD, "name": "a b"}],
        [{**WORKLOAD, "name": "../web"}],
        [{**WORKLOAD, "name": "x" * 65}],
        [{**WORKLOAD, "name": "cmd"}],
        [{**WORKLOAD, "cmd": []}],
        [{**WORKLOAD, "cmd": [""]}],
        [{**WORKLOAD, "cmd": "sleep 9"}],
        [{**WORKLOAD, "restart_policy": "no"}],
        [{**WORKLOAD, "restart_delay": -1}],
        [{**WORKLOAD, "restart_delay": 3601}],
        [{**WORKLOAD, "restart_delay": 0.5}],
        [{**WORKLOAD, "max_restarts": -1}],
        [{**WORKLOAD, "log_path": "web.log"}],
        [{**WORKLOAD, "log_path": "/var/log/"}],
        [{**WORKLOAD, "enabled": "yes"}],
        [{**WORKLOAD, "working_dir": "/" + "ü" * 2100}],
        [WORKLOAD, WORKLOAD],
        [{**WORKLOAD, "name": f"w{number}"} for number in range(33)],
        WORKLOAD,
    ],
)
def test_a_wrong_workload_is_refused_and_leaves_nothing(api: Caller, vmhost: FakeHost, workloads: object) -> None:
    answer = api.post("/workspace", {"config": {"workloads": workloads}})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_CONFIG")
    assert {name.split(".")[0] for name in answer.json()["details"]} == {"workloads"}
    assert not Workspace.objects.exists()


def test_workloads_reach_the_machine(api: Caller, vmhost: FakeHost) -> None:
    full = {
        "name": "Web.1_a-b", "cmd": ["run", ""], "env": ["A=b"], "working_dir": "/srv", "user": "nobody",
        "restart_policy": "on-failure", "max_restarts": 3, "restart_delay": 3600, "log_path": "/var/log/web.log",
    }  # fmt: skip
    off = {**WORKLOAD, "name": "off", "enabled": False}
    config = {"workloads": [full, off, {**WORKLOAD, "restart_delay": 0}]}
    made = api.post("/workspace", {"config": config}).json()["workspace"]["id"]
    domain = FakeStore(machines_dir()).domain(made)
    assert domain is not None
    first, second = domain.spec.boot.workloads
    assert (first.name, first.cmd, first.env, first.restart, first.max_restarts, first.restart_delay) == (
        "Web.1_a-b", ("run", ""), {"A": "b"}, "on-failure", 3, 3600,
    )  # fmt: skip
    assert (first.working_dir, first.user, first.log_path) == ("/srv", "nobody", "/var/log/web.log")
    assert (second.name, second.restart, second.restart_delay, second.log_path) == ("web", "always", 0, None)


def test_missing_credentials_are_reported_as_missing_user_id(api: Caller, vmhost: FakeHost) -> None:
    answer = api.post("/workspace", {}, X_Client_Secret="wrong")
    assert (answer.status_code, answer.json()["error"]) == (401, "MISSING_USER_ID")
