"""`/workspace/:id/network`: what is accepted, what the machine gets, and when."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import make, until
from vmbackend.errors import BackendUnavailable
from vmbackend.policy import NetworkPolicy
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.models import Activity, Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
DEFAULT = {
    "allow_internet": True, "ingress_ports": [], "egress_ports": [], "egress": [], "public_access": False,
    "ingress": [],
}  # fmt: skip
NARROW = {
    "allow_internet": False,
    "egress": ["api.example.com", "*.example.org", "203.0.113.0/24"],
    "egress_ports": [443],
    "ingress_ports": [8080],
}


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    return make(api, vmhost, Status.RUNNING, slug="the-box")


def change(api: Caller, body: dict[str, Any], status: int = 200, method: str = "PATCH") -> dict[str, Any]:
    answer = api.send(method, "/workspace/the-box/network", body)
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


def policy(**fields: Any) -> NetworkPolicy:
    return NetworkPolicy(**{name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()})


def test_the_network_is_shown(api: Caller, made: str) -> None:
    answer = api.get("/workspace/the-box/network").json()
    assert answer == {"success": True, **DEFAULT, "network": DEFAULT}
    assert api.get("/workspace/the-box").json()["workspace"]["network"] == DEFAULT


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_change_reaches_the_running_machine_at_once(api: Caller, vmhost: FakeHost, made: str, method: str) -> None:
    answer = change(api, NARROW, method=method)
    assert (answer["applied"], answer["problem"]) == (True, None)
    assert answer["network"] == {**DEFAULT, **NARROW}
    assert {name: answer[name] for name in DEFAULT} == answer["network"]
    assert vmhost.driver.policy_of(made) == policy(**NARROW)
    assert not Workspace.objects.get(pk=made).network_stale
    # What is left out stays.
    assert change(api, {"egress_ports": []}, method=method)["network"] == {**DEFAULT, **NARROW, "egress_ports": []}
    assert vmhost.driver.policy_of(made) == policy(**{**NARROW, "egress_ports": []})


@pytest.mark.parametrize("status", [Status.STOPPED, Status.PAUSED, Status.SLEEPING])
def test_a_change_of_one_that_does_not_run_is_kept(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = make(api, vmhost, status, slug="the-box")
    assert change(api, NARROW)["applied"] is True
    assert vmhost.driver.policy_of(made) == policy(**NARROW)
    assert api.post(f"/workspace/{made}/start").status_code == 200
    assert vmhost.driver.policy_of(made) == policy(**NARROW)


def test_a_new_workspace_begins_with_what_its_creation_says(api: Caller, vmhost: FakeHost) -> None:
    config = {"network_config": {"allow_internet": False, "public_ingress": True}}
    made = make(api, vmhost, Status.RUNNING, config=config)
    assert vmhost.driver.policy_of(made) == NetworkPolicy(allow_internet=False)
    assert api.get(f"/workspace/{made}/network").json()["network"]["public_access"] is True


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("API.Example.COM", "api.example.com"),
        ("example.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("*.Bücher.example", "*.xn--bcher-kva.example"),
        ("_srv.example.com", "_srv.example.com"),
        ("198.51.100.7", "198.51.100.7/32"),
        ("203.0.113.0/24", "203.0.113.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:470::/32", "2001:470::/32"),
        ("2606:4700::1111", "2606:4700::1111/128"),
        (" example.com ", "example.com"),
    ],
)
def test_destinations_are_stored_in_one_form(api: Caller, made: str, given: str, stored: str) -> None:
    assert change(api, {"egress": [given, given]})["network"]["egress"] == [stored]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("203.0.113.5/24", "203.0.113.0/24"),
        ("203.0.113.0/33", "203.0.113.0/24"),
        ("127.0.0.1", "Private"),
        ("10.1.2.0/24", "Private"),
        ("192.168.0.0/16", "Private"),
        ("169.254.169.254", "Private"),
        ("fd00::/8", "Private"),
        ("::1", "Private"),
        ("2600::1%eth0", "with an interface"),
        ("https://example.com", "*.example.com"),
        ("example.com/path", "network"),
        ("example.com:443", "name"),
        ("*", "first label"),
        ("a.*.example.com", "first label"),
        ("*example.com", "first label"),
        ("*.com", "two labels"),
        ("localhost", "two labels"),
        ("app.localhost", "two labels"),
        ("-a.example.com", "name"),
        ("a..example.com", "name"),
        ("exa mple.com", "name"),
        ("x" * 64 + ".example.com", "name"),
        ("a." * 125 + "example.com", "name"),
        ("evil.example.com\nserver=/x/", "network"),
        ("a/b#c.example.com", "network"),
        ("evil.example.com\nserver", "name"),
        ("", ""),
        (7, ""),
    ],
)
def test_invalid_destinations_are_reported_by_their_index(
    api: Caller, vmhost: FakeHost, made: str, given: Any, word: str
) -> None:
    answer = change(api, {"egress": ["example.com", given]}, 400)
    assert answer["code"] == "validation_error"
    ((place, sentences),) = answer["details"].items()
    assert place.startswith("egress")
    assert "1" in place
    assert word in " ".join(sentences)
    assert vmhost.driver.policy_of(made) == NetworkPolicy()


@pytest.mark.parametrize(
    "body",
    [
        {"egress_ports": [0]},
        {"egress_ports": [65536]},
        {"ingress_ports": ["80"]},
        {"ingress_ports": [80.5]},
        {"ingress_ports": [True]},
        {"ingress_ports": 80},
        {"egress_ports": list(range(1, 102))},
        {"egress": [f"n{number}.example.com" for number in range(101)]},
        {"egress": "example.com"},
        {"ingress": ["example.com"]},
        {"ingress": ["203.0.113.5/24"]},
        {"allow_internet": "yes"},
        {"public_access": 1},
        {"ingress": None},
    ],
)
def test_wrong_types_and_ranges_are_reported(api: Caller, made: str, body: dict[str, Any]) -> None:
    answer = change(api, body, 400)
    assert answer["code"] == "validation_error"
    assert {key.split("[")[0].split(".")[0] for key in answer["details"]} == set(body)
    assert api.get("/workspace/the-box/network").json()["network"] == DEFAULT


def test_callers_networks_may_be_private_ones(api: Caller, made: str) -> None:
    given = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"]
    assert change(api, {"ingress": given})["network"]["ingress"] == ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]


def test_ports_come_sorted_and_once(api: Caller, made: str) -> None:
    assert change(api, {"egress_ports": [443, 80, 443]})["network"]["egress_ports"] == [80, 443]


def test_a_host_that_was_away_finds_the_change(
    api: Caller, vmhost: FakeHost, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vmhost.redis_away = True
    answer = change(api, NARROW)
    vmhost.redis_away = False
    assert answer["applied"] is False
    assert "host" in answer["problem"]
    assert answer["network"]["egress_ports"] == [443]
    assert vmhost.driver.policy_of(made) == NetworkPolicy()
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.policy_of(made) == policy(**NARROW)
    assert not Workspace.objects.get(pk=made).network_stale


def test_a_host_that_could_not_do_it_tries_again(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.fail_next("set_network", BackendUnavailable("The firewall did not answer."))
    answer = change(api, NARROW)
    assert answer["applied"] is False
    assert "firewall" in answer["problem"]
    vmhost.restart()
    assert vmhost.driver.policy_of(made) == policy(**NARROW)


def test_a_start_that_was_under_way_does_not_bring_the_former_policy_back(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(api, vmhost, Status.STOPPED, slug="the-box")
    prepare, entered, go = vmhost.driver.prepare, threading.Event(), threading.Event()

    def slow(spec: Any) -> Any:
        entered.set()
        go.wait(10)
        return prepare(spec)

    monkeypatch.setattr(vmhost.driver, "prepare", slow)
    start = threading.Thread(target=lambda: api.post(f"/workspace/{made}/start"))
    start.start()
    assert entered.wait(120)
    answers: list[Any] = []
    changing = threading.Thread(target=lambda: answers.append(change(api, NARROW)))
    changing.start()
    until(lambda: Workspace.objects.get(pk=made).egress_ports == [443])
    go.set()
    start.join(20)
    changing.join(20)
    assert answers[0]["applied"] is True
    assert vmhost.driver.policy_of(made) == policy(**NARROW)


def test_changes_at_once_end_with_the_row(api: Caller, vmhost: FakeHost, made: str) -> None:
    threads = [
        threading.Thread(target=change, args=(api, {"egress_ports": [port], "egress": [f"n{port}.example.com"]}))
        for port in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    vmhost.settle()
    row = Workspace.objects.get(pk=made)
    assert vmhost.driver.policy_of(made) == policy(egress_ports=row.egress_ports, egress=row.egress)
    assert not row.network_stale


def test_a_workspace_without_a_machine_keeps_it_for_the_next_one(api: Caller, vmhost: FakeHost) -> None:
    make_workspace(api.account, slug="the-box", status=Status.FAILED)
    answer = change(api, NARROW)
    assert answer["applied"] is False
    assert "when one is created" in answer["problem"]


def test_a_destroyed_workspace_has_no_network(api: Caller, vmhost: FakeHost) -> None:
    make_workspace(api.account, slug="the-box", status=Status.DESTROYED)
    assert change(api, NARROW, 409)["code"] == "vm_missing"


def test_what_changed_is_in_the_activity_and_nothing_else(api: Caller, made: str) -> None:
    change(api, {"egress_ports": [443], "allow_internet": True})
    change(api, {"egress_ports": [443]})
    found = Activity.objects.filter(workspace_id=made, action="network_changed")
    assert [entry.detail for entry in found] == ["Changed: egress_ports."]


def test_a_reinstall_keeps_policy_and_public_addresses(api: Caller, vmhost: FakeHost, made: str) -> None:
    change(api, NARROW)
    url = api.post("/workspace/the-box/public-access", {"port": 8080}).json()["public_port"]["url"]
    assert api.post(f"/workspace/{made}/reinstall").status_code == 200
    assert vmhost.driver.policy_of(made) == policy(**NARROW)
    assert api.get("/workspace/the-box").json()["workspace"]["public_ports"][0]["url"] == url
