"""A hostile tenant's URLs and receivers, through the engine that sends: what it reaches and learns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import LazySettings

from tests.callers import Caller
from tests.outbound.outside import CORPUS, OK, Outside, Receiver, answering, outside_world
from tests.webhooks.receiver import Sending
from tests.webhooks.sending import make_subscription, permitted, publish
from webhooks.models import Attempt, AuditEntry, Delivery, Subscription

pytestmark = pytest.mark.django_db

HOST = "hooks.example.com"
URLS = [url for urls in CORPUS["urls"].values() for url in urls]


@pytest.fixture
def outside(no_name_server: None) -> Iterator[Outside]:
    with outside_world() as world:
        yield world


@pytest.fixture
def inside() -> Iterator[Receiver]:
    """What must not be reached."""
    with Receiver(answering(OK)) as there:
        yield there
        assert there.connections == 0


def test_no_url_of_the_corpus_is_sent_to(api: Caller, outside: Outside, inside: Receiver, hooks: Sending) -> None:
    """Rows that the guard did not see, such as those of a former, weaker one."""
    for url in URLS:
        make_subscription(api.account, url.replace("{port}", str(inside.port)))
    keys = publish(api.account)
    hooks.settle(60)
    rows = Delivery.objects.filter(pk__in=keys)
    assert {(row.status, row.last_status_code) for row in rows} == {("pending", None)}
    assert all(row.attempts for row in rows)  # where this takes more than 5 s, the first ones are tried again
    assert len(rows) == len(URLS)
    assert outside.dialled == []


def test_a_name_that_leads_inside_after_its_registration_is_not_sent_to(
    api: Caller, outside: Outside, inside: Receiver, hooks: Sending
) -> None:
    outside.names[HOST] = [["8.8.8.8"], ["127.0.0.1"]]
    answer = api.post("/webhooks", {"url": f"https://{HOST}:{inside.port}/", "events": ["*"]})
    assert answer.status_code == 201
    publish(api.account)
    hooks.settle()
    assert Delivery.objects.get().last_status_code is None
    assert outside.dialled == []


def test_what_is_shown_of_inner_names_and_ports_is_the_same_whether_they_are_open(
    api: Caller, outside: Outside, inside: Receiver, hooks: Sending
) -> None:
    outside.names |= {"open.example.com": [["127.0.0.1"]], "closed.example.com": [["10.0.0.7"]]}
    for url in (
        f"https://open.example.com:{inside.port}/",
        "https://open.example.com:2/",
        "https://closed.example.com/",
    ):
        make_subscription(api.account, url)
    make_subscription(api.account, "https://unknown.example.com/")
    publish(api.account)
    hooks.settle()
    assert len(set(Delivery.objects.values_list("status", "last_error", "last_status_code"))) == 1
    assert len(set(Attempt.objects.values_list("status_code", "error"))) == 1


EVIL = b"a\x1b[2Jb\x85\x9b2J \xe2\x80\xa8evil"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 " + EVIL + b"\r\nX-A: " + EVIL + b"\r\nContent-Length: 4\r\n\r\nevil",
        b"HTTP/1.1 410 " + EVIL + b"\r\nX-A: " + EVIL + b"\r\nContent-Length: 4\r\n\r\nevil",
        b"HTTP/1.1 503 " + EVIL + b"\r\nRetry-After: " + EVIL + b"\r\nContent-Length: 4\r\n\r\nevil",
        EVIL * 100,
        b"HTTP/1.1 999 " + EVIL + b"\r\n\r\n",
    ],
)
def test_nothing_that_a_receiver_sends_is_stored_or_logged(
    api: Caller, hooks: Sending, raw: bytes, caplog: pytest.LogCaptureFixture, settings: LazySettings
) -> None:
    caplog.set_level("DEBUG", logger="webhooks")
    caplog.set_level("DEBUG", logger="outbound")
    with Receiver(answering(raw)) as there, permitted(settings, there):
        make_subscription(api.account, f"http://127.0.0.1:{there.port}/")
        publish(api.account)
        hooks.settle()
        assert there.connections == 1
    for model in (Subscription, Delivery, Attempt, AuditEntry):
        assert "evil" not in repr(list(model.objects.values()))
    assert "evil" not in caplog.text
