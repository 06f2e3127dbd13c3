"""The process `streams` is killed in the middle of a call; and what is said is nowhere that others look."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path

import httpx
import pytest
from django.conf import LazySettings
from django.test import Client
from django.utils import timezone

from assist.calls import SLACK, expire_calls
from assist.models import Call, DayCount
from assist.services import NewApiKey
from credits.models import Balance, Entry, Hold
from tests.assist.conftest import BODIES, called
from tests.assist.model_server import Exchange, ModelServer
from tests.callers import Caller
from tests.killed_process import ROOT, database_url, killed_process
from tests.webhooks.outbox import published, subscribe
from tests.webhooks.receiver import until
from webhooks.models import Subscription

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def streams(settings: LazySettings) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process on the database of this test, and its socket."""
    environment = {**os.environ, **settings.ENV.variables(), "PLATFORM_DATABASE_URL": database_url()}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'platform'}"
    environment["DJANGO_SETTINGS_MODULE"] = "config.settings"
    with tempfile.TemporaryDirectory(prefix="mvm-", dir="/tmp") as folder:
        socket = str(Path(folder) / "streams.sock")
        command = [sys.executable, "-m", "config.serve_asgi", "--uds", socket]
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        try:
            until(lambda: Path(socket).exists(), 120)
            yield process, socket
        finally:
            process.kill()
            process.wait()


def ask(socket: str, key: NewApiKey) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=socket), timeout=30) as client:
        headers = {"Authorization": f"Bearer {key.key}", "Host": "testserver"}
        return client.post("http://testserver/v1/blurs/generate", json=BODIES["generate"], headers=headers)


def ask_in_vain(socket: str, key: NewApiKey) -> None:
    with pytest.raises(httpx.HTTPError):
        ask(socket, key)


def test_a_call_whose_process_was_killed_is_given_back_when_its_time_is_over(
    api: Caller, key: NewApiKey, model: ModelServer, settings: LazySettings
) -> None:
    model.script = model.hang
    with streams(settings) as (process, socket):
        broken: list[BaseException] = []

        def call() -> None:
            try:
                ask(socket, key)
            except httpx.HTTPError as exc:
                broken.append(exc)

        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: model.open == 1, 30)
        process.kill()
        thread.join()
    assert len(broken) == 1
    until(lambda: model.gone == 1)
    assert (DayCount.objects.get().used, Hold.objects.count(), expire_calls()) == (1, 1, 0)
    row = Call.objects.get()
    bound = timedelta(seconds=settings.ENV.assist_queue_seconds + settings.ENV.assist_seconds) + SLACK
    assert row.expires_at <= timezone.now() + bound
    Call.objects.update(expires_at=timezone.now())
    assert [expire_calls(), expire_calls()] == [1, 0]
    assert (DayCount.objects.get().used, Hold.objects.count(), Entry.objects.count()) == (0, 0, 0)
    assert Balance.objects.get().held == 0
    model.script = Exchange.good
    assert called(key).status == 200


def test_a_whole_server_answers_and_its_stop_gives_calls_back(
    api: Caller, key: NewApiKey, model: ModelServer, settings: LazySettings
) -> None:
    with streams(settings) as (process, socket):
        assert ask(socket, key).json()["code"] == "print(1)"
        model.script = model.hang
        thread = threading.Thread(target=ask_in_vain, args=(socket, key))
        thread.start()
        until(lambda: model.open == 1, 30)
        process.terminate()
        process.wait(120)
        thread.join()
    Call.objects.update(expires_at=timezone.now())
    expire_calls()
    assert (DayCount.objects.get().used, Hold.objects.count(), Call.objects.count()) == (1, 0, 0)


def test_a_call_may_be_killed_at_any_statement(api: Caller, key: NewApiKey) -> None:
    """It counts, is paid and announced, or it is none of these; nothing stays held."""
    subscribe(api.account)
    ends = []
    with killed_process() as process:
        for statement in count(1):
            killed = process.killed_at(statement, "tests.assist.killed.call_run")
            Call.objects.update(expires_at=timezone.now())
            ends.append(expire_calls())
            used = sum(DayCount.objects.values_list("used", flat=True))
            assert (used, used) == (Entry.objects.count(), len(published(api.account)))
            assert (Hold.objects.count(), Call.objects.count()) == (0, 0)
            assert sum(Balance.objects.values_list("held", flat=True)) == 0
            if not killed:
                break
    assert used >= 1, "the last one was not killed"
    assert 0 < sum(ends) < statement, "some died between the two transactions"


PLANTED = "heliotrope-and-tangerine"


def test_what_is_said_is_in_no_log_admin_list_error_event_or_row(
    api: Caller,
    key: NewApiKey,
    model: ModelServer,
    staff: Client,
    caplog: pytest.LogCaptureFixture,
    settings: LazySettings,
) -> None:
    """Planted in the prompt, in answers, in errors of the server and in the address that a request names."""
    subscribe(api.account)
    scripts = {
        "valid": lambda exchange: exchange.good(code=PLANTED),
        "prose": lambda exchange: exchange.answer(PLANTED),
        "refusal": lambda exchange: exchange.status(400, body=PLANTED.encode()),
        "error within": lambda exchange: (exchange.begin_stream(), exchange.event({"error": {"message": PLANTED}})),
        "no completion": lambda exchange: exchange.status(200, body=PLANTED.encode()),
    }
    body = {"prompt": PLANTED, "context": PLANTED, "webhook_url": f"https://1.1.1.1/{PLANTED}"}
    said = []
    with caplog.at_level("DEBUG"):
        for name, script in scripts.items():
            model.script = script
            found = called(key, body=body)
            assert (found.status == 200) == (name == "valid")
            if found.status != 200:
                said.append(found.body.decode())
        said.append(
            called(key, "optimize", {"code": PLANTED, "type": PLANTED}).body.decode().replace(f'\\"{PLANTED}\\"', "")
        )
        said.append(called(key.key[:-1] + "x", body=body).body.decode())
    said += [record.getMessage() for record in caplog.records if record.name != "asyncio"]
    for page in ("assist/apikey", "assist/call", "assist/keyevent", "assist/daycount", "webhooks/subscription"):
        said.append(staff.get(f"/admin/{page}/").content.decode())
    for page in ("webhooks/event", "webhooks/delivery", "credits/entry"):
        said.append(staff.get(f"/admin/{page}/").content.decode())
    said += [str(published(api.account)), str(Entry.objects.values()), str(Call.objects.values())]
    assert Subscription.objects.filter(direct_key__isnull=False).count() == 1
    for secret in (PLANTED, key.key, key.webhook_secret, settings.ENV.assist_key, api.secret):
        assert [text[:300] for text in said if secret in text] == []
