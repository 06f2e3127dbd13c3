"""The routes of webhooks: create, list, change, delete, test, deliveries; the limit; scopes; what is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from accounts.scopes import Scope
from namespaces.models import Namespace, NamespaceActivity
from tests.callers import Caller, edge_header
from tests.webhooks.outbox import subscribe
from tests.world import assert_error
from webhooks.events import CATALOGUE
from webhooks.models import AuditEntry, Delivery, DeliveryStatus, DisabledReason, Event, Subscription

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


def test_a_test_event_goes_to_one_webhook_whatever_it_wants(api: Caller) -> None:
    made, _ = create(api), create(api, events=["*"])
    answer = api.post(f"/webhooks/{made['id']}/test")
    assert answer.status_code == 202
    delivery = answer.json()["delivery"]
    assert (delivery["event"], delivery["status"], delivery["attempts"]) == ("webhook.test", "pending", 0)
    assert Delivery.objects.get().subscription.public_id == made["id"]
    assert Event.objects.get().data == {"webhook_id": made["id"]}
    assert api.get(f"/webhooks/{made['id']}/deliveries").json()["deliveries"] == [delivery]


def test_tests_and_redeliveries_of_an_account_are_limited(api: Caller, stranger: Caller) -> None:
    paths = [f"/webhooks/{create(api)['id']}" for _ in range(2)]
    delivery = api.post(f"{paths[0]}/test").json()["delivery"]
    ways = [f"{path}/test" for path in paths] + [f"/webhooks/deliveries/{delivery['id']}/redeliver"]
    answers = [api.post(ways[number % 3]) for number in range(60)]
    assert [answer.status_code for answer in answers] == [202] * 59 + [429]
    assert_error(api.post(f"{paths[0]}/redeliver", {"since": "2026-01-01T00:00:00Z"}), 429, "rate_limited")
    assert api.get("/webhooks").status_code == 200
    assert stranger.post(f"/webhooks/{create(stranger)['id']}/test").status_code == 202


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


def test_deliveries_are_filtered_and_paged(api: Caller) -> None:
    made = create(api)
    path = f"/webhooks/{made['id']}"
    sent = [api.post(f"{path}/test").json()["delivery"]["id"] for _ in range(3)]
    rows = Delivery.objects.order_by("created_at")
    Delivery.objects.filter(pk=sent[0]).update(
        status=DeliveryStatus.FAILED, next_attempt_at=None, last_status_code=500, last_error="Status 500.", attempts=10
    )
    assert [row.pk for row in rows] == sent
    body = api.get(f"{path}/deliveries?limit=2").json()
    assert body["pagination"] == {"total": 3, "limit": 2, "offset": 0}
    assert len(body["deliveries"]) == 2
    failed = api.get(f"{path}/deliveries?status=failed").json()["deliveries"]
    assert [(each["id"], each["last_status_code"], each["last_error"]) for each in failed] == [
        (sent[0], 500, "Status 500.")
    ]
    assert_error(api.get(f"{path}/deliveries?status=lost"), 400, "validation_error")


def test_a_listing_costs_the_same_with_few_deliveries_and_with_many(
    api: Caller, django_assert_num_queries: Any
) -> None:
    path = f"/webhooks/{create(api)['id']}"
    for count in (1, 20):
        for _ in range(count):
            api.post(f"{path}/test")
        with django_assert_num_queries(4):
            api.get(f"{path}/deliveries")


def test_switched_off_nothing_is_sent_until_it_is_switched_on(api: Caller) -> None:
    path = f"/webhooks/{create(api)['id']}"
    api.post(f"{path}/test")
    api.put(path, {"active": False})
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.next_attempt_at) == (DeliveryStatus.DISABLED, None)
    assert_error(api.post(f"{path}/test"), 409, "conflict")
    assert_error(api.post(f"/webhooks/deliveries/{delivery.pk}/redeliver"), 409, "conflict")
    assert_error(api.post(f"{path}/redeliver", {"since": "2020-01-01T00:00:00Z"}), 409, "conflict")
    api.put(path, {"active": True})
    again = api.post(f"/webhooks/deliveries/{delivery.pk}/redeliver")
    assert (again.status_code, again.json()["delivery"]["status"]) == (202, "pending")
    assert again.json()["delivery"]["event_id"] == delivery.event_id


def test_switching_on_again_begins_without_failures(api: Caller) -> None:
    webhook = subscribe(api.account, active=False, disabled_reason=DisabledReason.FAILING, failing_since=timezone.now())
    path = f"/webhooks/{webhook.public_id}"
    assert api.put(path, {"active": False}).json()["webhook"]["disabled_reason"] == "failing"
    body = api.put(path, {"active": True}).json()["webhook"]
    assert (body["active"], body["disabled_reason"]) == (True, None)
    webhook.refresh_from_db()
    assert webhook.failing_since is None


def test_failed_deliveries_are_sent_again(api: Caller) -> None:
    path = f"/webhooks/{create(api)['id']}"
    for _ in range(3):
        api.post(f"{path}/test")
    old, failed, _ = Delivery.objects.order_by("created_at")
    Delivery.objects.filter(pk__in=[old.pk, failed.pk]).update(status=DeliveryStatus.FAILED, next_attempt_at=None)
    answer = api.post(f"{path}/redeliver", {"since": failed.created_at.isoformat(), "status": "failed"})
    assert (answer.status_code, answer.json()) == (202, {"success": True, "count": 1})
    failed.refresh_from_db()
    assert failed.status == DeliveryStatus.PENDING
    for body in ({}, {"since": "yesterday"}, {"since": "2026-01-01T00:00:00Z", "status": "pending"}):
        assert_error(api.post(f"{path}/redeliver", body), 400, "validation_error")


def test_the_former_secret_signs_until_its_grace_ends(api: Caller) -> None:
    made = create(api)
    path = f"/webhooks/{made['id']}/rotate"
    body = api.post(path, {"grace_seconds": 60}).json()
    assert body["secret"].startswith("whsec_")
    assert "secret" not in body["webhook"]
    stored = Subscription.objects.get()
    assert (stored.secret, stored.former_secret) == (body["secret"], made["secret"])
    assert stored.former_secret_until is not None
    assert 0 < (stored.former_secret_until - timezone.now()).total_seconds() <= 60
    api.post(path, {"grace_seconds": 0})
    stored.refresh_from_db()
    assert (stored.former_secret, stored.former_secret_until) == (None, None)
    api.post(path)
    stored.refresh_from_db()
    assert stored.former_secret_until is not None
    assert 86_000 < (stored.former_secret_until - timezone.now()).total_seconds() <= 86_400
    for seconds in (-1, 604_801, "60", 1.5):
        assert_error(api.post(path, {"grace_seconds": seconds}), 400, "validation_error")


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
