"""The edge's authorization requests: the upstream of a public port, and the answers to refused requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from kombu.exceptions import OperationalError

from accounts.services import account_switch
from common.edge_header import edge_secret
from common.request_origin import client_address
from tests.callers import Caller
from tests.workspaces.network.edge_requests import PORT, WAKE, ask, heads, through_fast_path
from tests.workspaces.rows import make_host
from workspaces import host_rpc, last_used
from workspaces.models import Operation, PublicPort
from workspaces.network import services
from workspaces.states import Status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_edge_state")]


def test_a_running_workspace_is_returned_with_its_port(public: Callable[..., PublicPort]) -> None:
    found = public()
    answer = ask(f"{found.hash}.localhost")
    assert (answer.status_code, answer["X-Upstream"], answer.content) == (200, "10.200.0.9:8080", b"")
    assert ask(f"{found.hash.upper()}.LOCALHOST.").status_code == 200


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
        {"secret": "lie"},
        {"secret": "lü\u20ac"},
        {"path": WAKE},
        {"path": "/workspace"},
        {"method": "POST"},
    ):
        assert through_fast_path(name, **given) == ("404", "")
    assert through_fast_path("unknown.localhost") == ("404", "")
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


@pytest.mark.parametrize("joined", ["{},198.51.100.1", "198.51.100.1,{}", "{},{}x"])
def test_a_header_to_which_something_was_joined_is_refused(public: Callable[..., PublicPort], joined: str) -> None:
    """As a server does with a second header whose name becomes the same variable."""
    name = f"{public(ingress=['198.51.100.0/24']).hash}.localhost"
    value = joined.replace("{}", heads(name)["X-Edge"])
    for path in (PORT, WAKE):
        assert ask(name, path, X_Edge=value).status_code == 404
    assert through_fast_path(name, X_Edge=value) == ("404", "")


def test_only_the_edge_is_answered(public: Callable[..., PublicPort]) -> None:
    name = f"{public().hash}.localhost"
    for path in (PORT, WAKE):
        for secret in ("", "lie", edge_secret("another key"), edge_secret(settings.SECRET_KEY)[:-1]):
            answer = ask(name, path, secret=secret)
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


def test_what_is_not_public_is_as_what_never_was(public: Callable[..., PublicPort]) -> None:
    """Equal answers for ports that are closed, withdrawn, or named wrongly, to programs and to browsers."""
    withdrawn, shut, closed = public(), public(public_access=False), public(ingress_ports=[80])
    asleep = public(public_access=False, status=Status.SLEEPING)
    withdrawn_hash = withdrawn.hash
    withdrawn.delete()
    labels = [withdrawn_hash, shut.hash, closed.hash, asleep.hash, f"wrong-{public().hash}"]
    for path in (PORT, WAKE):
        for accept in ("*/*", "text/html"):
            answers = [
                ask(f"{label}.localhost", path, Accept=accept, X_Request_ID="same")
                for label in ("aaaaaaaaaaaaaaaaaaaa", *labels)
            ]
            seen = [(answer.status_code, dict(answer.items()), answer.content) for answer in answers]
            assert all(each == seen[0] for each in seen)
            assert seen[0][0] == 404


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SLEEPING])
def test_ports_of_an_account_that_is_not_active_are_as_what_never_was(
    api: Caller, public: Callable[..., PublicPort], status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And wake nothing. Connections that are open are closed."""
    closed: list[tuple[object, ...]] = []
    monkeypatch.setattr(services, "send_unanswered", lambda *sent: closed.append(sent))
    host = make_host("local")
    found = public(status=status, host=host)
    account_switch(api.account, is_active=False)
    expected = (host.queue, services.TASK, found.workspace_id, [8080])
    assert closed == ([expected] if status == Status.RUNNING else [])
    for path in (PORT, WAKE):
        absent = ask("aaaaaaaaaaaaaaaaaaaa.localhost", path, X_Request_ID="same")
        answer = ask(f"{found.hash}.localhost", path, X_Request_ID="same")
        assert (answer.status_code, answer.content) == (404, absent.content)
    assert through_fast_path(f"{found.hash}.localhost") == ("404", "")
    assert not Operation.objects.exists()
    account_switch(api.account, is_active=True)
    assert ask(f"{found.hash}.localhost").status_code == (200 if status == Status.RUNNING else 202)


def test_a_deactivation_waits_for_no_host(
    api: Caller, public: Callable[..., PublicPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each workspace would take ten seconds where the host is down. With the broker gone the first one is enough."""
    sent: list[str] = []
    monkeypatch.setattr(host_rpc, "blocking_client", lambda *_: pytest.fail("the request waits for a reply"))
    monkeypatch.setattr(host_rpc.current_app, "send_task", lambda name, args, **_: sent.append(args[0]))
    host = make_host("local")
    found = [public(host=host, ip=f"10.200.0.{number}").workspace_id for number in range(3)]
    account_switch(api.account, is_active=False)
    assert sorted(sent) == sorted(found)

    def away(*_: object, **__: object) -> None:
        sent.append("away")
        raise OperationalError("The broker is away.")

    sent.clear()
    monkeypatch.setattr(host_rpc.current_app, "send_task", away)
    account_switch(api.account, is_active=False)
    assert sent == ["away"]


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
        assert ask(name, caller=caller).status_code == status


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
