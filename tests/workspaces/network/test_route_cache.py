"""What the edge may know by itself for the rest of a second: which answers are cached, and what invalidates them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from common.errors import VMUnavailable
from edge.route_cache import RouteCache, route_cache_folder
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import wait_until
from tests.workspaces.network.clock import SECOND, Clock, found
from tests.workspaces.network.edge_requests import through_fast_path
from tests.workspaces.workspace_states import bring, make
from vmbackend.models import Host
from workspaces import route_cache
from workspaces.edge_auth import fast_path
from workspaces.models import PublicPort, Workspace
from workspaces.placement import free_address
from workspaces.states import Status
from workspaces.transitions import transition

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.set_up(monkeypatch)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the edge of this test looks."""
    (tmp_path / "run").mkdir()
    made = RouteCache(route_cache_folder(tmp_path / "run"))
    for place in (route_cache, fast_path):
        monkeypatch.setattr(place, "route_cache", lambda: made)
    return route_cache_folder(tmp_path / "run")


def test_the_answer_for_an_open_port_is_cached_for_its_second(
    public: Callable[..., PublicPort], clock: Clock, folder: Path
) -> None:
    port = public()
    PublicPort.objects.filter(pk=port.pk).update(slug="my-app")
    for name in (port.hash, port.hash.upper(), f"my-app-{port.hash}"):
        assert through_fast_path(f"{name}.localhost")[0] == "200"
    names = sorted([port.hash, f"my-app-{port.hash}"])
    assert found(folder) == [f"{SECOND}/{name}/10.200.0.9:8080" for name in names]
    assert folder.stat().st_mode & 0o077 == 0


def test_only_what_holds_for_every_visitor_is_cached(
    public: Callable[..., PublicPort], clock: Clock, folder: Path
) -> None:
    assert through_fast_path(f"{public(ingress=['192.0.2.0/24']).hash}.localhost")[0] == "200"
    for fields in (
        {"public_access": False},
        {"ingress": ["198.51.100.0/24"]},
        {"ingress_ports": [80]},
        {"status": Status.SLEEPING},
        {"status": Status.SUSPENDING},
        {"status": Status.PAUSED},
        {"ready": False},
    ):
        assert through_fast_path(f"{public(**fields).hash}.localhost")[0] == "404"
    assert through_fast_path(f"{public().hash}.localhost", secret="lie")[0] == "404"
    assert found(folder) == []


def test_what_was_looked_up_before_the_second_began_is_not_cached(
    public: Callable[..., PublicPort], clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, real = f"{public().hash}.localhost", fast_path.find_target

    def slow(*args: Any) -> Any:
        target = real(*args)
        clock.now += 1
        return target

    monkeypatch.setattr(fast_path, "find_target", slow)
    assert through_fast_path(name)[0] == "200"
    assert found(folder) == []


def shut_access(api: Caller, host: FakeHost, made: str) -> None:
    assert api.send("PATCH", f"/workspace/{made}/network", {"public_access": False}).status_code == 200


def list_callers(api: Caller, host: FakeHost, made: str) -> None:
    assert api.send("PATCH", f"/workspace/{made}/network", {"ingress": ["192.0.2.0/24"]}).status_code == 200


def withdraw(api: Caller, host: FakeHost, made: str) -> None:
    assert api.delete(f"/workspace/{made}/public-access/8080").status_code == 200


def rename(api: Caller, host: FakeHost, made: str) -> None:
    assert api.post(f"/workspace/{made}/public-access", {"port": 8080, "slug": "new"}).status_code == 200


def stop(api: Caller, host: FakeHost, made: str) -> None:
    bring(api, host, made, Status.STOPPED)


def pause(api: Caller, host: FakeHost, made: str) -> None:
    bring(api, host, made, Status.PAUSED)


def sleep(api: Caller, host: FakeHost, made: str) -> None:
    bring(api, host, made, Status.SLEEPING)


def lose(api: Caller, host: FakeHost, made: str) -> None:
    bring(api, host, made, Status.LOST)


def delete(api: Caller, host: FakeHost, made: str) -> None:
    assert api.delete(f"/workspace/{made}").status_code == 200


def published(api: Caller, vmhost: FakeHost) -> tuple[str, list[str]]:
    """A running workspace with a public port; returns its id and the port's labels."""
    made = make(api, vmhost, Status.RUNNING)
    assert api.post(f"/workspace/{made}/public-access", {"port": 8080, "slug": "old"}).status_code == 201
    hash_ = PublicPort.objects.get(workspace=made).hash
    return made, [hash_, f"old-{hash_}"]


@pytest.mark.parametrize(
    "change",
    [shut_access, list_callers, withdraw, rename, stop, pause, sleep, lose, delete],
    ids=lambda it: it.__name__,
)
def test_a_change_is_known_to_the_edge_at_once(
    api: Caller, vmhost: FakeHost, folder: Path, clock: Clock, change: Callable[[Caller, FakeHost, str], None]
) -> None:
    made, labels = published(api, vmhost)
    clock.now += 1
    for label in labels:
        assert through_fast_path(f"{label}.localhost")[0] == "200"
    assert len(found(folder)) == 2
    change(api, vmhost, made)
    # Right after the commit, which may be another thread's.
    wait_until(lambda: all(Path(folder, str(clock.now), label).is_file() for label in labels))
    assert found(folder) == []
    # A look-up from before that comes late.
    for label in labels:
        route_cache.route_cache().store(clock.now, label, "10.200.0.9:8080")
    assert found(folder) == []
    assert [place for place in folder.glob("*/*") if place.name in labels and place.is_dir()] == []


def test_other_ports_answers_stay(
    public: Callable[..., PublicPort], api: Caller, vmhost: FakeHost, clock: Clock, folder: Path
) -> None:
    made, _ = published(api, vmhost)
    clock.now += 1
    other = public()
    assert through_fast_path(f"{other.hash}.localhost")[0] == "200"
    stop(api, vmhost, made)
    assert found(folder) == [f"{clock.now}/{other.hash}/10.200.0.9:8080"]


def test_a_change_that_is_taken_back_forgets_nothing(
    public: Callable[..., PublicPort], clock: Clock, folder: Path
) -> None:
    port = public()
    assert through_fast_path(f"{port.hash}.localhost")[0] == "200"
    with transaction.atomic():
        transition(port.workspace, Status.STOPPING)
        transaction.set_rollback(True)
    assert len(found(folder)) == 1


def test_memory_is_saved_only_when_every_request_is_asked_about(
    api: Caller, vmhost: FakeHost, clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that requested the sleep died right after its commit."""
    made, labels = published(api, vmhost)
    clock.now += 1
    assert through_fast_path(f"{labels[0]}.localhost")[0] == "200"
    monkeypatch.setattr(route_cache, "invalidate_routes", lambda workspace, more=(): None)
    seen: list[list[str]] = []
    real = vmhost.driver.sleep

    def look(key: str) -> None:
        seen.append(found(folder))
        real(key)

    monkeypatch.setattr(vmhost.driver, "sleep", look)
    sleep(api, vmhost, made)
    assert seen == [[]]


def test_an_address_that_visitors_may_still_be_sent_to_is_not_assigned_again(
    vmhost: FakeHost, clock: Clock, folder: Path
) -> None:
    host = Host.objects.get()
    host.subnet = "10.9.9.0/29"
    former = [f"10.9.9.{number}" for number in (2, 3, 4, 5)]
    for number, address in enumerate(former):
        route_cache.route_cache().store(SECOND, f"{number}", f"{address}:80")
    assert {free_address(host) for _ in range(20)} == {"10.9.9.6"}
    route_cache.route_cache().store(SECOND, "4", "10.9.9.6:80")
    with pytest.raises(VMUnavailable):
        free_address(host)
    clock.now += 1
    assert free_address(host) in {*former, "10.9.9.6"}


def test_a_file_system_that_fails_stops_no_change(
    public: Callable[..., PublicPort], folder: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    port = public()
    folder.write_text("in the way")
    assert through_fast_path(f"{port.hash}.localhost") == ("200", "10.200.0.9:8080")
    transition(port.workspace, Status.STOPPING)
    assert Workspace.objects.get().status == Status.STOPPING
    assert "until the second ends" in caplog.text


def test_where_no_instance_runs_nothing_is_cached_or_notified(
    public: Callable[..., PublicPort], folder: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    port = public()
    folder.parent.rmdir()
    assert through_fast_path(f"{port.hash}.localhost")[0] == "200"
    transition(port.workspace, Status.STOPPING)
    assert caplog.text == ""
    assert not folder.parent.exists()
