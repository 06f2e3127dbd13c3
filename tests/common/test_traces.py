"""Traces: one from a request over its operation to its steps, sent to a collector, which may be away or slow."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from celery import current_app, shared_task
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from common import log_context, trace_export, traces
from common.log_context import LogContextFilter
from common.log_json import JsonLines
from common.trace_middleware import TraceMiddleware
from config.env import Env
from tests.callers import Caller
from tests.collector import Collector, attributes_of
from tests.fakehost import FakeHost
from tests.free_ports import free_port
from vmbackend.errors import InvalidMachineState
from workspaces.host.steps import create
from workspaces.operations.queue import RUN_TASK

TOKEN = "cs_a-token-that-no-span-may-have"


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Turn traces on as PLATFORM_TRACES_ENDPOINT does."""

    def turn_on(url: str, share: float = 1.0) -> None:
        env = settings.ENV.model_copy(update={"traces_endpoint": url, "traces_share": share})
        monkeypatch.setattr(settings, "ENV", env)
        middleware = list(settings.MIDDLEWARE)
        at = middleware.index("common.middleware.ApiMiddleware") + 1
        middleware.insert(at, "common.trace_middleware.TraceMiddleware")
        monkeypatch.setattr(settings, "MIDDLEWARE", middleware)

    yield turn_on
    traces.end_sending()


class Broker:
    """Keeps what is sent, with the headers that Celery's signal adds; `deliver` runs it as a worker does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[str, list[Any], dict[str, Any]]] = []
        monkeypatch.setattr(current_app, "send_task", self._send)

    def _send(self, name: str, args: Any = (), **_: Any) -> None:
        headers: dict[str, Any] = {}
        log_context.task_headers(headers)
        self.sent.append((name, list(args), headers))

    def deliver(self) -> None:
        for name, args, headers in self.sent:
            if name == RUN_TASK:
                current_app.tasks[name].apply(args=args, headers=headers, throw=True)


@pytest.fixture
def broker(vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Broker:
    return Broker(monkeypatch)


@pytest.mark.django_db(transaction=True)
def test_a_request_its_operation_and_its_steps_are_one_trace(
    api: Caller, broker: Broker, collector: Collector, use: Callable[..., None]
) -> None:
    use(collector.url)
    body = {"wait_ready": False, "name": TOKEN, "env": {"SECRET": TOKEN}}
    made = api.send("POST", "/workspace", body).json()["workspace"]["id"]
    broker.deliver()
    traces.end_sending()
    request, task = collector.named("POST /workspace"), collector.named(f"task {RUN_TASK}")
    operation = collector.named("operation create")
    assert (task.parent_span_id, operation.parent_span_id) == (request.span_id, task.span_id)
    steps = [span.name for span in collector.spans if span.parent_span_id == operation.span_id]
    assert steps == [f"step {name}" for name, _ in create.STEPS]
    assert {span.trace_id for span in collector.spans} == {request.trace_id}
    expected = {"http.request.method": "POST", "http.route": "/workspace", "http.response.status_code": 202}
    assert attributes_of(request) == expected
    assert attributes_of(operation)["platform.workspace_id"] == made
    assert collector.resources[0]["service.name"] == "microvm-workspaces"
    assert TOKEN not in str(collector.spans)


@pytest.mark.django_db(transaction=True)
def test_what_failed_is_named_by_its_code_and_without_its_sentence(
    api: Caller, vmhost: FakeHost, broker: Broker, collector: Collector, use: Callable[..., None]
) -> None:
    use(collector.url)
    vmhost.driver.fail_next("start", InvalidMachineState(f"The backend says {TOKEN}."))
    api.send("POST", "/workspace", {"wait_ready": False})
    broker.deliver()
    traces.end_sending()
    operation = collector.named("operation create")
    assert operation.status.code == operation.status.STATUS_CODE_ERROR
    assert attributes_of(operation)["error.type"] == InvalidMachineState.code
    assert TOKEN not in str(collector.spans)


def test_a_span_has_the_pattern_of_a_route_and_nothing_of_the_request(
    collector: Collector, use: Callable[..., None]
) -> None:
    use(collector.url)
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "X-Request-ID": TOKEN, "Authorization": f"Bearer {TOKEN}"}
    Client().get(f"/no/such/{TOKEN}?q={TOKEN}", headers=headers, REMOTE_ADDR="203.0.113.9")
    Client().generic(TOKEN, "/healthz")
    traces.end_sending()
    assert [span.name for span in collector.spans] == ["GET", "_OTHER /healthz"]
    text = str(collector.spans)
    assert TOKEN not in text
    assert "203.0.113.9" not in text
    assert collector.spans[0].trace_id.hex() != "a" * 32


def test_requests_of_one_event_loop_have_traces_of_their_own(collector: Collector, use: Callable[..., None]) -> None:
    use(collector.url)

    async def answer(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0.01)
        with traces.span(f"inside {request.path}"):
            await asyncio.sleep(0.01)
        return HttpResponse(status=204)

    async def ask_all() -> None:
        middleware = TraceMiddleware(answer)
        await asyncio.gather(*(middleware(RequestFactory().get(f"/{name}")) for name in "ab"))

    asyncio.run(ask_all())
    traces.end_sending()
    requests = [span for span in collector.spans if span.name == "GET"]
    inside = {span.name: span for span in collector.spans if span.name != "GET"}
    assert len({span.trace_id for span in requests}) == 2
    assert {span.parent_span_id for span in inside.values()} == {span.span_id for span in requests}


@shared_task(name="tests.traces.fail")
def fail_task() -> None:
    raise ValueError(TOKEN)


def test_a_task_that_fails_is_a_failed_span(collector: Collector, use: Callable[..., None]) -> None:
    use(collector.url)
    fail_task.apply()
    traces.end_sending()
    assert attributes_of(collector.named("task tests.traces.fail"))["error.type"] == "task_failed"
    assert TOKEN not in str(collector.spans)


def test_a_task_without_a_trace_begins_one_and_the_next_has_nothing_of_it(
    collector: Collector, use: Callable[..., None]
) -> None:
    use(collector.url)
    fail_task.apply()
    assert traces.current_ids() == ("", "")
    fail_task.apply()
    traces.end_sending()
    first, second = collector.spans
    assert first.trace_id != second.trace_id


def test_log_lines_have_the_ids_of_their_span(collector: Collector, use: Callable[..., None]) -> None:
    use(collector.url)
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    handler.addFilter(LogContextFilter())
    own = logging.Logger("tests.traces")
    own.addHandler(handler)
    with traces.span("work"):
        own.warning("inside")
    own.warning("after")
    traces.end_sending()
    inside, after = map(json.loads, stream.getvalue().splitlines())
    span = collector.named("work")
    assert (inside["trace_id"], inside["span_id"]) == (span.trace_id.hex(), span.span_id.hex())
    assert not {"trace_id", "span_id"} & set(after)


@pytest.mark.parametrize("away", ["not there", "errors", "slow"])
def test_a_collector_that_is_away_or_slow_keeps_no_caller_and_is_one_line_in_the_log(
    away: str,
    collector: Collector,
    use: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setattr(trace_export, "EXPORT_SECONDS", 0.2)
    monkeypatch.setattr(trace_export, "END_SECONDS", 1.0)
    use(f"http://127.0.0.1:{free_port()}/v1/traces" if away == "not there" else collector.url)
    if away == "slow":
        collector.hold.clear()
    collector.status = 500
    for _ in range(5000):  # more than the queue has room for
        with traces.span("work"):
            pass
    wait_until(lambda: bool(mentions(caplog)))
    traces.end_sending()
    assert len(mentions(caplog)) == 1


def mentions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == trace_export.__name__]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_collector_that_comes_back_gets_spans_again(
    collector: Collector, use: Callable[..., None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    caplog.set_level(logging.INFO)
    use(collector.url)
    collector.status = 400
    with traces.span("dropped"):
        pass
    wait_until(lambda: bool(mentions(caplog)))
    collector.status = 200
    with traces.span("sent"):
        pass
    traces.end_sending()
    assert [span.name for span in collector.spans] == ["sent"]
    assert "again" in mentions(caplog)[-1]


def test_a_share_of_none_sends_nothing(collector: Collector, use: Callable[..., None]) -> None:
    use(collector.url, share=0.0)
    with traces.span("work"):
        headers: dict[str, Any] = {}
        traces.task_headers(headers)
        # A process that goes on with it sends nothing, either.
        assert headers["traceparent"].endswith("-00")
    traces.end_sending()
    assert collector.spans == []


def test_spans_of_a_forked_process_are_sent_by_itself(collector: Collector, use: Callable[..., None]) -> None:
    use(collector.url)
    with traces.span("of the parent"):
        pass
    child = os.fork()
    if not child:
        with traces.span("of the child"):
            pass
        traces.end_sending()
        os._exit(0)
    os.waitpid(child, 0)
    assert [span.name for span in collector.spans] == ["of the child"]
    traces.end_sending()
    assert sorted(span.name for span in collector.spans) == ["of the child", "of the parent"]


def test_a_child_that_is_forked_while_a_thread_begins_a_span_does_not_wait_for_it(
    collector: Collector, use: Callable[..., None]
) -> None:
    use(collector.url)
    with traces._Process.lock:  # as another thread has it while it makes the first span
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            with traces.span("of the child"):
                pass
            traces.end_sending()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [span.name for span in collector.spans] == ["of the child"]


def test_without_the_setting_nothing_that_makes_or_sends_spans_is_imported() -> None:
    code = (
        "import django, sys; django.setup()\n"
        "from django.test import Client\n"
        "import config.celery, workspaces.tasks\n"
        "Client().get('/healthz')\n"
        # redis-py imports the part for metrics by itself, where it is installed.
        "parts = ('opentelemetry.sdk.trace', 'opentelemetry.exporter')\n"
        "print([name for name in sys.modules if name.startswith(parts)])"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONPATH": ".:platform"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=settings.ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://collector", "http://user:secret@collector", "http://c/?k=v"])
def test_an_address_that_is_none_of_a_collector_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_TRACES_ENDPOINT"):
        Env.from_environment({"PLATFORM_TRACES_ENDPOINT": url})


def test_an_address_without_a_path_gets_that_of_otlp() -> None:
    assert (
        Env.from_environment({"PLATFORM_TRACES_ENDPOINT": "http://c:4318"}).traces_endpoint == "http://c:4318/v1/traces"
    )
    assert Env.from_environment({"PLATFORM_TRACES_ENDPOINT": "https://c/own"}).traces_endpoint == "https://c/own"
