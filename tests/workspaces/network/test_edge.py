"""The edge's authorization requests: the upstream of a public port, and the answers to refused requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import AsyncClient, Client
from django.utils import timezone

from common.redis import redis_client
from common.request_origin import client_address
from edge.secret import edge_secret
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.workspace_states import bring, make
from vmbackend.errors import BackendUnavailable
from workspaces import last_used
from workspaces.edge_auth.fast_path import EdgeAuthFastPath
from workspaces.edge_auth.wake_coalescer import wake_coalescer
from workspaces.host.sweep import sweep_due
from workspaces.models import Operation, PublicPort, Workspace
from workspaces.models.operation import OperationKind
from workspaces.models.workspace import Mode
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
PORT, WAKE = "/internal/edge/port", "/internal/edge/wake"


@pytest.fixture(autouse=True)
def fresh() -> None:
    last_used._recorded_at.clear()
    wake_coalescer.cache_clear()


def heads(name: str, **more: str) -> dict[str, str]:
    given = {"X-Edge-Secret": edge_secret(settings.SECRET_KEY), "X-Edge-Host": name, "X-Forwarded-For": "192.0.2.1"}
    return {**given, **{key.replace("_", "-"): value for key, value in more.items()}}


def ask(name: str, path: str = PORT, **more: str) -> Any:
    return Client().get(path, headers=heads(name, **more))


def test_a_running_workspace_is_returned_with_its_port(public: Callable[..., PublicPort]) -> None:
    found = public()
    answer = ask(f"{found.hash}.localhost")
    assert (answer.status_code, answer["X-Upstream"], answer.content) == (200, "10.200.0.9:8080", b"")
    assert ask(f"{found.hash.upper()}.LOCALHOST.").status_code == 200


class Inner:
    """Stands for Django behind the fast path."""

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        start_response("404 Not Found", [])
        return [b"inner"]


def through_fast_path(name: str, path: str = PORT, method: str = "GET", **more: str) -> tuple[str, str]:
    """Status and upstream."""
    given = {f"HTTP_{key.upper().replace('-', '_')}": value for key, value in heads(name, **more).items()}
    seen: list[Any] = []
    EdgeAuthFastPath(Inner())({"PATH_INFO": path, "REQUEST_METHOD": method, **given}, lambda *args: seen.append(args))
    ((status, headers),) = seen
    return status[:3], dict(headers).get("X-Upstream", "")


def test_the_fast_path_gives_the_ordinary_answer_and_passes_on_all_else(
    public: Callable[..., PublicPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[str] = []
    monkeypatch.setattr(last_used, "record_use", recorded.append)
    found = public()
    name = f"{found.hash}.localhost"
    assert through_fast_path(name) == ("200", "10.200.0.9:8080")
    assert recorded == [found.workspace_id]
    for given in (
        {"X_Edge_Secret": "lie"},
        {"X_Edge_Secret": "lü\u20ac"},
        {"path": WAKE},
        {"path": "/workspace"},
        {"method": "POST"},
        {"X_Edge_Host": "unknown.localhost"},
    ):
        assert through_fast_path(name, **given) == ("404", "")
    for fields in (
        {"public_access": False},
        {"ingress": ["198.51.100.0/24"]},
        {"ingress_ports": [80]},
        {"status": Status.SLEEPING},
        {"status": Status.PAUSED},
        {"ready": False},
    ):
        assert through_fast_path(f"{public(**fields).hash}.localhost") == ("404", "")
    assert len(recorded) == 1


def test_only_the_edge_is_answered(public: Callable[..., PublicPort]) -> None:
    name = f"{public().hash}.localhost"
    for path in (PORT, WAKE):
        for secret in ("", "lie", edge_secret("another key"), edge_secret(settings.SECRET_KEY)[:-1]):
            answer = ask(name, path, X_Edge_Secret=secret)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
            assert "X-Upstream" not in answer


@pytest.mark.parametrize(
    "name",
    [
        "{hash}.example.com",
        "{hash}.localhost.evil.example",
        "x.{hash}.localhost",
        "{short}.localhost",
        "{hash}x.localhost",
        "other-{hash}.localhost",
        "-{hash}.localhost",
        "localhost",
        "",
        "{hash}",
        "aaaaaaaaaaaaaaaaaaaa.localhost",
        "' OR 1=1 --.localhost",
    ],
)
def test_only_the_exact_name_decides(public: Callable[..., PublicPort], name: str) -> None:
    hash_ = public().hash
    answer = ask(name.format(hash=hash_, short=hash_[:-1]))
    assert answer.status_code == 404
    page = ask(name.format(hash=hash_, short=hash_[:-1]), Accept="text/html,*/*")
    assert page["Content-Type"].startswith("text/html")
    assert "Nothing is published" in page.content.decode()
    assert page["Cache-Control"] == "no-store"


def test_a_slug_may_be_left_out_and_must_not_lie(public: Callable[..., PublicPort]) -> None:
    found = public()
    PublicPort.objects.filter(pk=found.pk).update(slug="my-app")
    assert [ask(f"{first}{found.hash}.localhost").status_code for first in ("", "my-app-", "your-app-")] == [
        200,
        200,
        404,
    ]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"public_access": False}, 404),
        ({"ingress_ports": [8080]}, 200),
        ({"ingress_ports": [80]}, 404),
        ({"ingress": ["192.0.2.0/24"]}, 200),
        ({"ingress": ["198.51.100.0/24", "2001:db8::/32"]}, 403),
        ({"ingress": ["::/0"]}, 403),
    ],
)
def test_the_network_settings_decide_who_comes_in(
    public: Callable[..., PublicPort], fields: dict[str, Any], status: int
) -> None:
    assert ask(f"{public(**fields).hash}.localhost").status_code == status


def test_an_ipv6_caller_is_known_by_its_network(public: Callable[..., PublicPort]) -> None:
    name = f"{public(ingress=['2001:db8::/32', '192.0.2.0/24']).hash}.localhost"
    for caller, status in (("2001:db8::7", 200), ("::ffff:192.0.2.9", 200), ("2001:db9::7", 403), ("nonsense", 403)):
        assert ask(name, X_Forwarded_For=caller).status_code == status


@pytest.mark.parametrize(
    ("behind", "forwarded", "client"),
    [
        (False, "192.0.2.1", "192.0.2.1"),
        (False, "8.8.8.8, 1.1.1.1", "1.1.1.1"),
        (True, "8.8.8.8, 10.0.0.2", "8.8.8.8"),
        (True, "9.9.9.9, 8.8.8.8, 10.0.0.2", "8.8.8.8"),
        (True, "10.0.0.7, 10.0.0.2", "10.0.0.7"),
    ],
)
def test_what_a_caller_says_of_itself_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, behind: bool, forwarded: str, client: str
) -> None:
    monkeypatch.setattr(settings.ENV, "behind_proxy", behind)
    assert client_address(forwarded) == client


@pytest.mark.parametrize("status", [Status.SLEEPING, Status.WAKING, Status.SUSPENDING])
def test_a_sleeping_workspace_is_waited_for_elsewhere(public: Callable[..., PublicPort], status: Status) -> None:
    answer = ask(f"{public(status=status).hash}.localhost")
    assert (answer.status_code, answer.content) == (202, b"")


@pytest.mark.parametrize(
    ("status", "word", "again"),
    [
        (Status.PAUSED, "paused", False),
        (Status.STOPPED, "does not run", False),
        (Status.FAILED, "does not run", False),
        (Status.LOST, "does not run", False),
        (Status.DESTROYED, "does not run", False),
        (Status.STARTING, "starting", True),
        (Status.RESTARTING, "starting", True),
    ],
)
def test_a_workspace_that_does_not_run_is_reported(
    public: Callable[..., PublicPort], status: Status, word: str, again: bool
) -> None:
    name = f"{public(status=status).hash}.localhost"
    answer = ask(name)
    assert (answer.status_code, answer.json()["code"]) == (503, "workspace_not_running")
    assert word in answer.json()["message"]
    assert ("Retry-After" in answer) is again
    assert word in ask(name, Accept="text/html").content.decode()


def test_a_request_is_a_use_and_redis_is_not_notified_of_each(
    public: Callable[..., PublicPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = public()
    recorded: list[str] = []
    monkeypatch.setattr(last_used, "record_use", recorded.append)
    for _ in range(20):
        assert ask(f"{found.hash}.localhost").status_code == 200
    assert recorded == [found.workspace_id]
    ask("unknown.localhost")
    assert recorded == [found.workspace_id]


@pytest.fixture
def asleep(api: Caller, vmhost: FakeHost) -> PublicPort:
    """A real workspace on the fake driver, asleep, with a public port."""
    made = make(api, vmhost, Status.RUNNING, slug="the-box", mode="permanent")
    assert api.post("/workspace/the-box/public-access", {"port": 8080}).status_code == 201
    Workspace.objects.filter(pk=made).update(suspend_after=600)
    bring(api, vmhost, made, Status.SLEEPING)
    return PublicPort.objects.get()


def storm(name: str, count: int) -> list[Any]:
    async def all_of_them() -> list[Any]:
        client = AsyncClient()
        return list(await asyncio.gather(*(client.get(WAKE, headers=heads(name)) for _ in range(count))))

    return asyncio.run(all_of_them())


def wakes() -> int:
    return Operation.objects.filter(kind=OperationKind.WAKE).count()


def test_a_request_wakes_a_sleeping_workspace_and_is_then_admitted(vmhost: FakeHost, asleep: PublicPort) -> None:
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    row = Workspace.objects.get()
    assert (answer.status_code, answer["X-Upstream"]) == (200, f"{row.ip}:8080")
    assert (row.status, row.ready, vmhost.driver.resync_count(row.pk)) == ("running", True, 1)
    assert last_used.last_used(row.pk) > 0


def test_a_storm_makes_one_wake_and_all_are_admitted(vmhost: FakeHost, asleep: PublicPort) -> None:
    vmhost.driver.delays["start"] = 0.5
    answers = storm(f"{asleep.hash}.localhost", 100)
    assert {answer.status_code for answer in answers} == {200}
    assert wakes() == 1


def test_a_failed_wake_is_reported_and_the_next_request_tries_again(vmhost: FakeHost, asleep: PublicPort) -> None:
    vmhost.driver.fail_next("start", BackendUnavailable("The hypervisor is away."), times=3)
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert Workspace.objects.get().status == Status.SLEEPING
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    assert answer.status_code == 200


def test_a_workspace_stopped_in_its_sleep_is_reported(api: Caller, vmhost: FakeHost, asleep: PublicPort) -> None:
    assert api.post("/workspace/the-box/stop").status_code == 200
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    assert (answer.status_code, answer.json()["code"]) == (503, "workspace_not_running")
    assert "does not run" in answer.json()["message"]
    assert wakes() == 0


def test_a_closed_port_wakes_no_workspace(api: Caller, vmhost: FakeHost, asleep: PublicPort) -> None:
    api.send("PATCH", "/workspace/the-box/network", {"public_access": False})
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    assert (answer.status_code, wakes(), Workspace.objects.get().status) == (404, 0, "sleeping")


def test_an_open_connection_keeps_a_workspace_awake(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)

    def idle_is_over() -> Workspace:
        due = {"mode": Mode.PERMANENT, "suspend_after": 120, "idle_due_at": timezone.now() - timedelta(seconds=1)}
        Workspace.objects.filter(pk=made).update(**due)
        redis_client().delete(last_used._key(made))
        sweep_due()
        vmhost.settle()
        return Workspace.objects.get(pk=made)

    vmhost.driver.connections[made] = [8080]
    row = idle_is_over()
    assert row.status == Status.RUNNING
    assert row.idle_due_at is not None
    assert row.idle_due_at > timezone.now()
    assert last_used.is_in_use(made, 60)
    vmhost.driver.connections[made] = []
    assert idle_is_over().status == Status.SLEEPING
