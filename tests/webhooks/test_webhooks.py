"""The routes of webhooks: create, list, change, delete, test, deliveries; the limit; scopes; what is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from accounts.scopes import Scope
from namespaces.models import Namespace, NamespaceActivity
from tests.callers import Caller, edge_header
from tests.webhooks.outbox import subscribe
from tests.world import assert_error
from webhooks.events import CATALOGUE
from webhooks.models import AuditEntry, Subscription

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/in?token=t0ken"
NEW = {"url": URL, "events": ["vm.stopped"]}


@pytest.fixture
def other(api: Caller) -> Namespace:
    return Namespace.objects.create(account=api.account, name="Other", slug="other")


@pytest.fixture
def inside(api: Caller, other: Namespace, scoped: Callable[..., Caller]) -> Caller:
    """A caller whose credential is bound to the namespace `other`."""
    return scoped(api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug=other.slug)


def create(caller: Caller, **fields: Any) -> dict[str, Any]:
    answer = caller.post("/webhooks", {**NEW, **fields})
    assert answer.status_code == 201, answer.content
    return dict(answer.json()["webhook"])


def refused(answer: Any, status: int = 400, code: str = "validation_error") -> dict[str, Any]:
    """The details of the error."""
    assert_error(answer, status, code)
    return dict(answer.json()["details"])


def test_a_webhook_is_created_listed_changed_and_deleted(api: Caller) -> None:
    made = create(api, description="of a test")
    secret = made.pop("secret")
    assert made == {
        "id": made["id"],
        "url": URL,
        "events": ["vm.stopped"],
        "active": True,
        "description": "of a test",
        "namespace": None,
        "last_triggered_at": None,
        "last_status_code": None,
        "disabled_reason": None,
        "created_at": made["created_at"],
    }
    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert api.get("/webhooks").json() == {"success": True, "webhooks": [made]}
    path = f"/webhooks/{made['id']}"
    changes = {"url": "https://else.example.com/", "events": ["vm.lost", "vm.lost"], "active": False, "description": ""}
    changed = api.put(path, changes).json()["webhook"]
    assert changed == {**made, **changes, "events": ["vm.lost"]}
    assert api.delete(path).json() == {"success": True, "message": "The webhook was deleted."}
    assert api.get("/webhooks").json()["webhooks"] == []
    for answer in (api.put(path, {}), api.delete(path), api.get(f"{path}/deliveries"), api.post(f"{path}/rotate")):
        assert_error(answer, 404, "not_found")


def test_the_secret_and_the_url_are_not_readable_in_the_database(api: Caller) -> None:
    made = create(api, secret="a-secret-of-ones-own-choice")
    assert made["secret"] == "a-secret-of-ones-own-choice"
    api.post(f"/webhooks/{made['id']}/rotate")
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM webhooks_subscription")
        stored = str(cursor.fetchall())
    assert "hooks.example.com" in stored
    for secret in ("a-secret-of-ones-own-choice", "t0ken", "whsec_"):
        assert secret not in stored


def test_no_other_response_shows_the_secret(api: Caller) -> None:
    made = create(api)
    path = f"/webhooks/{made['id']}"
    answers = [api.get("/webhooks"), api.put(path, {"active": False}), api.put(path, {"active": True})]
    answers += [api.post(f"{path}/test"), api.get(f"{path}/deliveries"), api.post(f"{path}/rotate")]
    for answer in answers:
        assert answer.status_code < 300
        assert made["secret"] not in answer.content.decode()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "http://hooks.example.com/"),
        ("url", "https://user@hooks.example.com/"),
        ("url", "https://user:word@hooks.example.com/"),
        ("url", "https:///path"),
        ("url", "hooks.example.com"),
        ("url", "https://127.0.0.1/"),
        ("url", "https://[::1]/"),
        ("url", "https://169.254.169.254/latest"),
        ("url", "https://localhost/"),
        ("url", "https://hooks.example.com/" + "a" * 2048),
        ("url", 7),
        ("url", None),
        ("events", ["vm.stopped", "vm.burnt"]),
        ("events", []),
        ("events", "vm.stopped"),
        ("events", [7]),
        ("events", None),
        ("active", "yes"),
        ("description", "a" * 501),
    ],
)
def test_what_is_not_valid_is_named_and_nothing_is_written(api: Caller, field: str, value: Any) -> None:
    named = refused(api.post("/webhooks", {**NEW, field: value}))
    assert [name.partition(".")[0] for name in named] == [field]
    assert not Subscription.objects.exists()
    webhook = subscribe(api.account)
    assert_error(api.put(f"/webhooks/{webhook.public_id}", {field: value}), 400, "validation_error")
    stored = Subscription.objects.get()
    assert (stored.url, stored.events, stored.active) == (webhook.url, ["*"], True)


@pytest.mark.parametrize(
    "secret",
    [
        *("short", "a" * 256, "with space", "ünïcödé-secret", "", 12345678),
        *("a" * 7, f"{'a' * 8} ", f" {'a' * 8}", f"{'a' * 8}\n", f"{'a' * 12} {'a' * 12}", "ü" * 16, None),
        *("whsec_", "whsec_YWJjZA"),
    ],
)
def test_a_secret_that_cannot_be_one_is_refused(api: Caller, secret: Any) -> None:
    assert list(refused(api.post("/webhooks", {**NEW, "secret": secret}))) == ["secret"]
    assert not Subscription.objects.exists()


@pytest.mark.parametrize("secret", ["a" * 8, "whsec_" + "!" * 8, f"whsec_{base64.b64encode(bytes(6)).decode()}"])
def test_a_secret_of_ones_own_has_8_characters_at_least(api: Caller, secret: str) -> None:
    assert create(api, secret=secret)["secret"] == secret


@pytest.mark.parametrize("name", ["url", "events"])
def test_what_is_required_is_named(api: Caller, name: str) -> None:
    body = {key: value for key, value in NEW.items() if key != name}
    assert list(refused(api.post("/webhooks", body))) == [name]


def test_all_events_are_named_or_meant_by_a_star(api: Caller) -> None:
    body = api.get("/webhooks/events").json()
    assert body["events"] == list(CATALOGUE)
    assert body["descriptions"].keys() == set(body["events"])
    assert create(api, events=body["events"])["events"] == body["events"]
    assert create(api, events=["*"])["events"] == ["*"]


def test_the_eleventh_is_refused_until_one_is_deleted(api: Caller, inside: Caller, stranger: Caller) -> None:
    made = [create(caller) for caller in [api] * 6 + [inside] * 4]
    for caller in (api, inside):
        assert refused(caller.post("/webhooks", NEW), 409, "webhook_limit_exceeded") == {"current": 10, "max": 10}
    create(stranger)
    api.delete(f"/webhooks/{made[0]['id']}")
    create(inside)
    assert len(api.get("/webhooks").json()["webhooks"]) == 10


def test_a_credential_of_a_namespace_has_the_webhooks_of_it_alone(api: Caller, inside: Caller) -> None:
    everywhere, elsewhere = create(api), create(api, namespace="default")
    mine = create(inside)
    assert (everywhere["namespace"], elsewhere["namespace"], mine["namespace"]) == (None, "default", "other")
    assert create(inside, namespace="other")["namespace"] == "other"
    assert_error(inside.post("/webhooks", {**NEW, "namespace": "default"}), 403, "forbidden")
    assert {each["namespace"] for each in inside.get("/webhooks").json()["webhooks"]} == {"other"}
    assert len(api.get("/webhooks").json()["webhooks"]) == 4
    for webhook in (everywhere, elsewhere):
        assert_error(inside.put(f"/webhooks/{webhook['id']}", {"active": False}), 404, "not_found")
    delivery = api.post(f"/webhooks/{everywhere['id']}/test").json()["delivery"]
    assert_error(inside.post(f"/webhooks/deliveries/{delivery['id']}/redeliver"), 404, "not_found")


def test_the_list_is_filtered_by_a_namespace(api: Caller, inside: Caller, other: Namespace) -> None:
    everywhere, mine = create(api), create(api, namespace="other")
    assert [each["id"] for each in api.get("/webhooks").json()["webhooks"]] == [mine["id"], everywhere["id"]]
    assert [each["id"] for each in api.get("/webhooks?namespace=other").json()["webhooks"]] == [mine["id"]]
    assert api.get("/webhooks?namespace=default").json()["webhooks"] == []
    assert [each["id"] for each in inside.get("/webhooks?namespace=other").json()["webhooks"]] == [mine["id"]]
    assert_error(api.get("/webhooks?namespace=never"), 404, "not_found")
    assert_error(inside.get("/webhooks?namespace=default"), 403, "forbidden")


def test_an_id_is_a_number_that_json_holds_exactly(api: Caller) -> None:
    ids = [create(api)["id"] for _ in range(8)]
    assert all(isinstance(each, int) and 0 < each < 1 << 53 for each in ids)
    assert max(ids) > 1 << 48, "random, and not counted"
    assert api.put(f"/webhooks/{ids[0]}", {"description": "x"}).json()["webhook"]["id"] == ids[0]
    for other in ("0", str(1 << 53), "9" * 40, Subscription.objects.latest("created_at").pk):
        assert_error(api.put(f"/webhooks/{other}", {"description": "x"}), 404, "not_found")


def test_a_webhook_of_an_unknown_namespace_is_refused(api: Caller, inside: Caller, other: Namespace) -> None:
    assert_error(api.post("/webhooks", {**NEW, "namespace": "never"}), 404, "not_found")
    api.delete(f"/namespaces/{other.pk}")
    Namespace.objects.create(account=api.account, name="Other", slug="other")
    assert_error(inside.post("/webhooks", NEW), 404, "not_found")
    assert not Subscription.objects.exists()


def test_writes_of_an_account_are_limited(api: Caller, stranger: Caller) -> None:
    """Each writes activity, and may look a name up."""
    path = f"/webhooks/{create(api)['id']}"
    for number in range(70):
        assert_error(api.put(path, {"url": f"https://10.0.0.{number}/"}), 400, "validation_error")
    writes: list[Callable[[int], Any]] = [
        lambda number: api.put(path, {"description": f"the {number}th"}),
        lambda number: api.put(path, {"url": f"https://hooks.example.com/{number}"}),
        lambda _: api.post(f"{path}/rotate", {}),
    ]
    answers = [writes[number % 3](number) for number in range(60)]
    assert [answer.status_code for answer in answers] == [200] * 59 + [429]
    written = AuditEntry.objects.count()
    assert_error(api.post("/webhooks", NEW), 429, "rate_limited")
    assert_error(api.put(path, {"url": "https://elsewhere.example.com/"}), 429, "rate_limited")
    assert (AuditEntry.objects.count(), Subscription.objects.count()) == (written, 1)
    assert api.get("/webhooks").status_code == 200
    assert api.delete(path).status_code == 200, "what ends something is not limited"
    create(stranger)


def test_changes_are_in_the_audit_log_and_the_namespaces_activity(api: Caller, inside: Caller) -> None:
    api.post("/webhooks", NEW)
    assert not NamespaceActivity.objects.filter(action__startswith="webhook").exists()
    headers = {"User_Agent": "curl/8", "X_Edge": edge_header("203.0.113.9")}
    made = inside.send("POST", "/webhooks", NEW, **headers).json()["webhook"]
    path = f"/webhooks/{made['id']}"
    inside.send("PUT", path, {"active": False}, **headers)
    inside.send("PUT", path, {"active": False}, **headers)
    inside.send("POST", f"{path}/rotate", {}, **headers)
    inside.send("DELETE", path, **headers)
    actions = ["webhook_created", "webhook_updated", "webhook_secret_rotated", "webhook_deleted"]
    entries = AuditEntry.objects.filter(subscription_id=Subscription.objects.get(public_id=made["id"]).pk).order_by(
        "pk"
    )
    assert [entry.action for entry in entries] == actions
    activity = NamespaceActivity.objects.filter(action__startswith="webhook").order_by("pk")
    assert [entry.action for entry in activity] == actions
    for entry in (*entries, *activity):
        assert (entry.ip_address, entry.user_agent) == ("203.0.113.9", "curl/8")
        assert "t0ken" not in entry.detail
