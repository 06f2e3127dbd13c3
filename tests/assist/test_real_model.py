"""A real model, of 135 million parameters: with a schema it answers all three routes, without one it answers prose."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO

import httpx
import pytest
from django.conf import LazySettings
from django.core.management import CommandError, call_command

from assist.doctor import doctor_lines
from assist.models import Call, DayCount
from assist.services import NewApiKey
from credits.models import Entry, Hold
from tests.asgi import Request
from tests.assist.conftest import BODIES, assert_refused, called, configured, request_of, run
from tests.assist.model_server import GOOD
from tests.assist.real_model import model_file, serving_real_model
from tests.common.sse.reading import until
from tests.run_extent import campaign_after

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(model_file() is None, reason="`make setup-model` installs the model"),
]
# Its sizes of an answer: enough for an object of short texts, and little enough for one thread.
TOKENS = 400
TRIES = 6


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_real_model() as made:
        yield made


@pytest.fixture
def real(address: str, settings: LazySettings) -> None:
    configured(
        settings,
        assist_url=address,
        assist_model="smollm2",
        assist_output_tokens=TOKENS,
        assist_seconds=120.0,
        assist_key="",
    )


def idle(address: str) -> bool:
    """Whether the model's server answers nothing at the moment."""
    slots = httpx.get(address.removesuffix("/v1") + "/slots", timeout=10)
    return slots.status_code == 200 and not any(slot["is_processing"] for slot in slots.json())


@pytest.mark.parametrize("route", campaign_after(1, BODIES))
def test_a_real_model_answers_all_three_routes(real: None, key: NewApiKey, route: str) -> None:
    """A model of this size may run on until it is cut off, which is said; what it never does is break the schema."""
    for number in range(TRIES):
        # The same question has the same answer.
        body = {name: text + " " * number for name, text in BODIES[route].items() if name not in ("type", "language")}
        found = run(request_of(key, route, {**BODIES[route], **body}), seconds=200)[0]
        if found.status == 200:
            break
        error = assert_refused(found, 502, "GENERATION_FAILED")
        assert f"cut off at {TOKENS} tokens" in error["message"]
    assert found.json()["success"] is True
    assert set(found.json()) == {"success", *GOOD[route]}
    assert DayCount.objects.get().used == 1
    assert "counted by length" not in Entry.objects.get().description


def test_without_a_format_it_answers_prose_twice_and_that_fails(
    real: None, key: NewApiKey, settings: LazySettings
) -> None:
    configured(settings, assist_format="none", assist_output_tokens=60)
    body = {"prompt": "Say hello in one short sentence of English prose."}
    error = assert_refused(run(request_of(key, body=body), seconds=200)[0], 502, "GENERATION_FAILED")
    assert "hello" not in json.dumps(error).lower()
    assert DayCount.objects.get().used == Hold.objects.count() == Call.objects.count() == 0


def test_a_client_that_leaves_ends_what_the_real_model_does(real: None, key: NewApiKey, address: str) -> None:
    async def scenario() -> Request:
        leaving = request_of(key, body={"prompt": "Write a very long program with many functions."})
        task = asyncio.ensure_future(leaving.run())
        await until(lambda: not idle(address), 60)
        leaving.leave()
        await asyncio.gather(task, return_exceptions=True)
        begun = time.monotonic()
        await until(lambda: idle(address), 30)
        assert time.monotonic() - begun < 30
        return leaving

    asyncio.run(scenario())
    assert called(key, body={"prompt": ""}).status == 400


def test_assist_check_asks_it_one_question_and_doctor_names_it(real: None, key: NewApiKey) -> None:
    out = StringIO()
    with suppress(CommandError):  # it was cut off
        call_command("assist_check", stdout=out)
    assert "json_schema" in out.getvalue()
    assert "(as reported)" in out.getvalue()
    ((_, is_right, message, _),) = doctor_lines()
    assert (is_right, "accepts connections" in message) == (True, True)
