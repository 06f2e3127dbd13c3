"""The process `hooks` of a whole instance: Redis is away, it is stopped. Its kills are in `make chaos`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from os import kill
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.webhooks.receiver import Received, Receiver, Reply, receiving

# Rows are all that connects the api and `hooks`, so on PostgreSQL, too.

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SOON = 15.0


@pytest.fixture
def receiver(served: TestInstance, hook_port: int) -> Iterator[Receiver]:
    with receiving(port=hook_port) as made:
        yield made


@pytest.fixture
def webhook(client: Api, receiver: Receiver) -> Iterator[str]:
    body = {"url": receiver.url, "events": ["*"], "secret": SECRET}
    made: dict[str, Any] = client.call("POST", "/webhooks", 201, json=body)["webhook"]
    yield str(made["id"])
    client.patiently("DELETE", f"/webhooks/{made['id']}")


def held_until(release: threading.Event) -> Callable[[Received], Reply]:
    """The first request gets no answer before that; others do."""
    first = iter([True])

    def respond(_: Received) -> Reply:
        if next(first, False):
            release.wait(60)
        return Reply()

    return respond


def deliveries(client: Api, webhook: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.patiently("GET", f"/webhooks/{webhook}/deliveries")["deliveries"]
    return found


def send_test(client: Api, webhook: str) -> None:
    client.patiently("POST", f"/webhooks/{webhook}/test", 202)


def is_delivered(client: Api, webhook: str, attempts: int) -> bool:
    (found,) = deliveries(client, webhook)
    return (found["status"], found["attempts"]) == ("delivered", attempts)


def test_an_event_is_sent_at_once(client: Api, webhook: str, receiver: Receiver) -> None:
    send_test(client, webhook)
    until(lambda: receiver.received, SOON, "the event arrives")
    (sent,) = receiver.received
    body = Webhook(SECRET).verify(sent.body, dict(sent.headers))
    assert (body["type"], body["event"]) == ("webhook.test", "webhook.test")
    until(lambda: is_delivered(client, webhook, 1), SOON, "it is delivered")
    assert deliveries(client, webhook)[0]["event_id"] == body["id"] == sent.headers["x-webhook-id"]


def test_without_redis_events_are_sent(served: TestInstance, client: Api, webhook: str, receiver: Receiver) -> None:
    with served.without("redis"):
        send_test(client, webhook)
        until(lambda: receiver.received, SOON, "the event arrives")
        until(lambda: is_delivered(client, webhook, 1), SOON, "it is delivered")
    served.wait_until_running()
    send_test(client, webhook)
    until(lambda: len(receiver.received) == 2, SOON, "the next one arrives, too")


def test_a_process_that_starts_without_redis_sends_events(
    served: TestInstance, client: Api, webhook: str, receiver: Receiver
) -> None:
    with served.without("redis"):
        kill(served.pids()["hooks"], signal.SIGKILL)
        send_test(client, webhook)
        until(lambda: is_delivered(client, webhook, 1), SOON, "it is delivered")
    served.wait_until_running()


def test_a_process_that_is_stopped_ends_its_attempts_first(
    served: TestInstance, client: Api, webhook: str, receiver: Receiver
) -> None:
    release = threading.Event()
    receiver.respond = held_until(release)
    send_test(client, webhook)
    until(lambda: receiver.at_once == 1, SOON, "the attempt is made")
    threading.Timer(1.0, release.set).start()
    with served.without("hooks"):
        assert is_delivered(client, webhook, 1)
    assert len(receiver.received) == 1
