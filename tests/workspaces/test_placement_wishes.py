"""`placement` in creates: labels, spread, near; what is refused, and with what was missing."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.staff.pages import confirm
from tests.workspaces.rows import make_host, make_workspace, snapshot_row
from vmbackend.host_states import HostState
from vmbackend.models import Host
from vmbackend.services import host_describe
from workspaces import placement
from workspaces.crud.places import find_place, wish_of_retry
from workspaces.crud.services import provisioning_retry
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.models import Workspace
from workspaces.placement import Wish
from workspaces.quota import Amount
from workspaces.states import Provisioning, Status

pytestmark = pytest.mark.django_db

SMALL = Amount(100, 128, 64)


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what staff offer to users; a host has exactly the memory of its row."""
    monkeypatch.setattr(settings.ENV, "placement_labels", ("disk=ssd", "region=*"))
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"memory_overcommit": 1.0}))
    monkeypatch.setattr(settings.ENV, "memory_reserve_mb", 0)


def host(name: str, memory_mb: int = 4096, zone: str = "", **labels: str) -> Host:
    made = make_host(name)
    host_describe(host_id=made.pk, labels=labels, zone=zone)
    Host.objects.filter(pk=made.pk).update(memory_mb=memory_mb)
    return Host.objects.get(pk=made.pk)


def create(api: Caller, route: str = "/workspace", **body: Any) -> Any:
    sizes = {"cpus": 0.1, "memory_mb": 128, "disk_size_mb": 64}
    config = sizes if route == "/workspace" else {"config": sizes}
    return api.post(route, {"image": "localhost/tiny:1", "name": "web", "wait_ready": False, **config, **body})


def host_of(answer: Any) -> str:
    assert answer.status_code == 202, answer.json()
    body = answer.json()
    key = body["sandbox"]["workspace_id"] if "sandbox" in body else body["id"]
    return str(Workspace.objects.select_related("host").get(pk=key).host)


@pytest.mark.parametrize("route", ["/workspace", "/sandbox"])
def test_a_machine_is_made_on_a_host_with_its_labels(api: Caller, route: str) -> None:
    host("plain", 9000)
    host("ssd", disk="ssd", region="north")
    host("far", disk="ssd", region="south")
    wanted = {"disk": "ssd", "region": "south"}
    assert host_of(create(api, route, placement={"labels": wanted})) == "far"
    assert host_of(create(api, route, placement={"labels": {}})) == "plain"
    assert host_of(create(api, route, placement=None)) == "plain"
    assert Workspace.objects.order_by("created_at").values_list("placement", flat=True)[0] == {"labels": wanted}


@pytest.mark.parametrize("labels", [{"disk": "hdd"}, {"gpu": "yes"}, {"disk": "ssd", "rack": "1"}])
def test_labels_that_are_not_offered_are_refused_by_name(api: Caller, labels: dict[str, str]) -> None:
    host("ssd", disk="ssd")
    refused = create(api, placement={"labels": labels})
    assert (refused.status_code, refused.json()["code"]) == (400, "validation_error")
    assert list(refused.json()["details"]) == ["placement.labels"]
    assert "disk=ssd, region=*" in refused.json()["details"]["placement.labels"][0]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("host", "placement.non_field_errors"),
        ({"labels": {"disk": 1}}, "placement.labels.disk"),
        ({"labels": ["disk"]}, "placement.labels"),
        ({"spread": "rack"}, "placement.spread"),
        ({"near": 7}, "placement.near"),
    ],
)
def test_a_placement_of_another_form_is_refused_by_name(api: Caller, given: Any, named: str) -> None:
    host("one")
    refused = create(api, placement=given)
    assert (refused.status_code, list(refused.json()["details"])) == (400, [named])


def test_without_an_offer_no_label_is_accepted(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.ENV, "placement_labels", ())
    assert "it offers none" in create(api, placement={"labels": {"disk": "ssd"}}).content.decode()


def test_a_refusal_says_what_was_missing(api: Caller) -> None:
    assert missing(create(api)) == [{"what": "host", "wanted": 1, "best": 0}]
    host("plain", 100)
    Host.objects.update(disk_free_mb=10)
    assert missing(create(api, placement={"labels": {"disk": "ssd"}})) == [
        {"what": "labels", "wanted": {"disk": "ssd"}, "best": None}
    ]
    assert missing(create(api)) == [
        {"what": "memory_mb", "wanted": 128, "best": 100}, {"what": "disk_size_mb", "wanted": 64, "best": 10},
    ]  # fmt: skip
    assert not Workspace.objects.exists()


def missing(answer: Any) -> object:
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    return answer.json()["details"]["missing"]


def test_workspaces_of_one_kind_are_spread_over_hosts_while_there_is_another(api: Caller) -> None:
    host("large", 9000), host("small"), host("smaller", 2000)
    wish = {"spread": "host"}
    names = ["web-1", "web-2", "web 3"]
    assert [host_of(create(api, name=name, placement=wish)) for name in names] == ["large", "small", "smaller"]
    assert host_of(create(api, name="web-4", placement=wish)) == "large", "a wish, never a refusal"
    assert host_of(create(api, name="webapp", placement=wish)) == "large", "another kind"
    assert host_of(create(api, name="web-5")) == "large", "not asked for"
    Workspace.objects.filter(name="web-2").update(status=Status.DESTROYED)
    assert host_of(create(api, name="web-6", placement=wish)) == "small"


def test_workspaces_are_spread_over_zones_and_within_them_over_hosts(api: Caller) -> None:
    for name, memory, zone in (("a1", 9000, "a"), ("a2", 8000, "a"), ("b1", 4000, "b"), ("b2", 3000, "b")):
        host(name, memory, zone)
    wish = {"spread": "zone"}
    found = [host_of(create(api, name=f"db{number}", placement=wish)) for number in range(4)]
    assert found == ["a1", "b1", "a2", "b2"]


def test_other_accounts_and_namespaces_do_not_count_as_of_one_kind(api: Caller, stranger: Caller) -> None:
    large = host("large", 9000)
    host("small")
    make_workspace(stranger.account, host=large, name="web", ip="10.200.1.1")
    team = api.account.namespaces.create(slug="team", name="Team")
    make_workspace(api.account, namespace=team, host=large, name="web", ip="10.200.1.2")
    assert host_of(create(api, placement={"spread": "host"})) == "large"


@pytest.mark.parametrize("name", ["a.b*c[1]", "x\\y (2)", "7", "ä ö-1"])
def test_names_are_compared_as_they_are(api: Caller, name: str) -> None:
    large = host("large", 9000)
    host("small")
    make_workspace(api.account, host=large, name=name, ip="10.200.1.1")
    assert host_of(create(api, name=name, placement={"spread": "host"})) == "small"


def test_a_machine_is_made_near_another_one_or_not_at_all(api: Caller, stranger: Caller) -> None:
    host("large", 9000)
    small = host("small", 512)
    near = make_workspace(api.account, host=small, ip="10.200.1.1", status=Status.STOPPED)
    wish = {"near": near.pk}
    assert host_of(create(api, placement=wish)) == "small"
    Host.objects.filter(pk=small.pk).update(memory_mb=200)
    assert missing(create(api, placement=wish)) == [{"what": "memory_mb", "wanted": 128, "best": 72}]
    Host.objects.filter(pk=small.pk).update(state=HostState.DRAINING)
    assert missing(create(api, placement=wish)) == [{"what": "near", "wanted": 1, "best": 0}]
    for other in ("ws_nothing", make_workspace(stranger.account, host=small, ip="10.200.1.2").pk):
        refused = create(api, placement={"near": other})
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert "placement.near" in refused.json()["message"]


def test_a_plan_may_forbid_it(api: Caller) -> None:
    host("one", disk="ssd")
    api.account.plan.allows_placement = False
    api.account.plan.save()
    refused = create(api, placement={"labels": {"disk": "ssd"}})
    assert (refused.status_code, refused.json()["code"]) == (403, "RESOURCE_NOT_ALLOWED")
    assert refused.json()["details"] == {"resource": "placement"}
    assert host_of(create(api, placement={"spread": None})) == "one", "nothing is asked for"


def test_a_machine_from_a_snapshot_is_on_its_host_or_refused(api: Caller) -> None:
    first, other = host("first", region="north"), host("other", 9000, disk="ssd", region="north")
    parent = make_workspace(api.account, host=first, ip="10.200.1.1", status=Status.STOPPED)
    there = make_workspace(api.account, host=other, ip="10.200.1.1", status=Status.STOPPED)
    snapshot = snapshot_row(parent, host=first)
    snapshot.save()
    made = {"image": None, "snapshot": snapshot.pk}
    assert host_of(create(api, **made, placement={"labels": {"region": "north"}, "spread": "host"})) == "first"
    lacking = missing(create(api, **made, placement={"labels": {"disk": "ssd"}}))
    assert lacking == [{"what": "labels", "wanted": {"disk": "ssd"}, "best": None}]
    assert missing(create(api, **made, placement={"near": there.pk})) == [{"what": "near", "wanted": 1, "best": 0}]


def test_another_attempt_asks_for_the_same(api: Caller) -> None:
    host("large", 9000)
    ssd = host("ssd", disk="ssd")
    host_of(create(api, placement={"labels": {"disk": "ssd"}, "spread": "host", "near": None}))
    row = fail(Workspace.objects.get())
    provisioning_retry(actor="owner", workspace=row)
    row.refresh_from_db()
    assert (row.host, row.placement) == (ssd, {"labels": {"disk": "ssd"}, "spread": "host"})
    fail(row)
    Workspace.objects.update(placement={"near": "ws_gone"})
    provisioning_retry(actor="owner", workspace=row)
    assert Workspace.objects.get().host.name == "large", "what it was to be near is gone"  # type: ignore[union-attr]


def fail(row: Workspace) -> Workspace:
    row.operations.update(state="failed", finished_at=row.created_at)
    Workspace.objects.filter(pk=row.pk).update(status=Status.FAILED, provisioning_state=Provisioning.FAILED)
    row.refresh_from_db()
    return row


def test_a_host_for_which_the_image_is_not_made_is_the_last_resort_of_another_attempt(api: Caller) -> None:
    amd, arm = host("amd", 9000), host("arm")
    Host.objects.filter(pk=arm.pk).update(arch="arm64")
    row = make_workspace(
        api.account, host=amd, status=Status.FAILED, provisioning_state="failed", started_at=None,
        provisioning_error_code="image_wrong_platform",
    )  # fmt: skip
    wish = wish_of_retry(api.account, row)
    assert placement.place_on_host(SMALL, wish) == arm
    Host.objects.filter(pk=arm.pk).update(state=HostState.DRAINING)
    assert placement.place_on_host(SMALL, wish) == amd


def test_hosts_are_filtered_by_architecture_and_capabilities(api: Caller) -> None:
    host("amd", 9000)
    arm = host("arm")
    Host.objects.filter(pk=arm.pk).update(arch="arm64", capabilities={"accelerator": "kvm", "qemu": "9"})
    assert placement.place_on_host(SMALL, Wish(arch="arm64")) == arm
    assert placement.place_on_host(SMALL, Wish(capabilities={"accelerator": "kvm"})) == arm


def test_the_fullest_host_with_room_is_chosen_by_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    host("large", 9000), host("small", 200), host("tiny", 100)
    assert placement.place_on_host(SMALL).name == "large"
    monkeypatch.setattr(settings.ENV, "placement", "pack")
    assert placement.place_on_host(SMALL).name == "small"


@pytest.mark.parametrize("order", ["spread", "pack"])
def test_of_almost_equal_hosts_the_one_with_the_image_is_chosen(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setattr(settings.ENV, "placement", order)
    host("first", 4000), host("having", 4000), host("other", 8000 if order == "spread" else 400)
    Host.objects.filter(name="having").update(images=["localhost/tiny:1"])
    Host.objects.filter(name="other").update(state=HostState.DRAINING)
    wish = Wish(image="localhost/tiny:1")
    assert placement.place_on_host(SMALL, wish).name == "having"
    Host.objects.filter(name="other").update(state=HostState.ACTIVE)
    assert placement.place_on_host(SMALL, wish).name == "other", "room counts for more"
    assert find_place(SMALL, "localhost/tiny:1", may_be_warm=False).host.name == "other"


def test_a_host_reports_the_images_that_it_has(api: Caller, vmhost: FakeHost) -> None:
    host_of(create(api))
    vmhost.settle()
    reconcile_rows_and_machines(vmhost.runtime)
    assert Host.objects.get().images == ["localhost/tiny:1"]


def test_staff_set_labels_and_zone_of_a_host(staff: Client) -> None:
    one = host("one", gone="soon")
    confirm(staff, "vmbackend/host", "describe", one.pk, labels="disk=ssd\n\n region=north ", zone="a", reason="new")
    one.refresh_from_db()
    assert (one.labels, one.zone) == ({"disk": "ssd", "region": "north"}, "a")
    for wrong in ("ssd", "disk=*", "a b=c", "disk=" + "x" * 64, "\n".join(f"label-{n}=x" for n in range(33))):
        confirm(staff, "vmbackend/host", "describe", one.pk, labels=wrong, zone="a")
    confirm(staff, "vmbackend/host", "describe", one.pk, labels="", zone="a zone")
    one.refresh_from_db()
    assert (one.labels, one.zone) == ({"disk": "ssd", "region": "north"}, "a")
    page = staff.get(f"/admin/vmbackend/host/{one.pk}/change/").content.decode()
    assert "disk=ssd, region=north" in page
