"""A hostile tenant's URLs through the routes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.callers import Caller
from tests.outbound.outside import CORPUS, OK, Outside, Receiver, answering, outside_world
from tests.webhooks.outbox import subscribe
from webhooks.models import Subscription

pytestmark = pytest.mark.django_db

HOST = "hooks.example.com"
# A NUL character is refused with the whole body, and white space around a text is removed before it is read.
URLS = [url for urls in CORPUS["urls"].values() for url in urls if "\0" not in url and url == url.strip()]


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


def test_no_url_of_the_corpus_becomes_a_webhook(api: Caller, outside: Outside, inside: Receiver) -> None:
    stored = subscribe(api.account, url="https://8.8.8.8/")
    for url in URLS:
        named = url.replace("{port}", str(inside.port))
        for answer in (
            api.post("/webhooks", {"url": named, "events": ["*"]}),
            api.put(f"/webhooks/{stored.public_id}", {"url": named}),
        ):
            assert (answer.status_code, [*answer.json()["details"]]) == (400, ["url"]), url
    assert [row.url for row in Subscription.objects.all()] == ["https://8.8.8.8/"]
    assert outside.dialled == []


@pytest.mark.parametrize("case", sorted(set(CORPUS["names"]) - {"a number of addresses"}))
def test_no_name_that_leads_inside_becomes_a_webhook(api: Caller, outside: Outside, case: str) -> None:
    outside.names[HOST] = CORPUS["names"][case]
    answer = api.post("/webhooks", {"url": f"https://{HOST}/", "events": ["*"]})
    assert (answer.status_code, [*answer.json()["details"]]) == (400, ["url"])
    assert not Subscription.objects.exists()
