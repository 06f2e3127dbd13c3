"""Log lines say what they are about: the request, the operation, the workspace; as text and as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from typing import Any

import pytest
from celery import shared_task
from django.conf import settings
from django.test import Client

from common import log_context
from common.log_context import LogContextFilter, context_begin, logged_workspace_set, operation_logged
from common.log_json import JsonLines
from tests.callers import Caller
from tests.fakehost import FakeHost
from vmbackend.errors import InvalidMachineState

logger = logging.getLogger("tests.log_context")


@pytest.fixture(params=["line", "json"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def handler(form: str, stream: StringIO) -> logging.Handler:
    made = logging.StreamHandler(stream)
    line = settings.LOGGING["formatters"]["line"]["format"]
    made.setFormatter(JsonLines() if form == "json" else logging.Formatter(line))
    made.addFilter(LogContextFilter())
    return made


@pytest.fixture
def lines(form: str) -> Iterator[StringIO]:
    stream, root = StringIO(), logging.getLogger()
    made, level = handler(form, stream), root.level
    root.addHandler(made)
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(made)
    root.setLevel(level)
    context_begin("")


def test_a_line_has_the_ids_of_its_context(lines: StringIO) -> None:
    context_begin("req_1")
    with operation_logged("op_1", "ws_1"):
        logger.info("inside")
    logger.info("after")
    inside, after = lines.getvalue().splitlines()
    assert all(id in inside for id in ("req_1", "op_1", "ws_1"))
    assert "req_1" in after
    assert "op_1" not in after
    assert "ws_1" not in after


@pytest.mark.parametrize("form", ["json"])
def test_json_has_a_time_a_level_and_the_message_as_it_is(lines: StringIO) -> None:
    logger.warning('two\nlines, "quoted" %s', "ü\x00")
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("failed")
    first, second = map(json.loads, lines.getvalue().splitlines())
    assert first["message"] == 'two\nlines, "quoted" ü\x00'
    assert (first["level"], first["logger"]) == ("WARNING", "tests.log_context")
    assert datetime.fromisoformat(first["time"]).utcoffset() is not None
    assert {"request_id", "operation_id", "workspace_id"} & set(first) == set()
    assert "ValueError: no" in second["exc_info"]


def test_the_next_request_of_a_thread_has_nothing_of_the_one_before(lines: StringIO) -> None:
    context_begin("req_1")
    logged_workspace_set("ws_1")
    Client().get("/no-such-route", headers={"X-Request-ID": "req_2"})
    logger.info("of the second")
    assert "req_2" in lines.getvalue()
    assert "ws_1" not in lines.getvalue()


@shared_task(name="tests.log_context.print")
def print_task() -> None:
    logger.info("in the task")


@pytest.mark.parametrize("form", ["json"])
def test_a_task_has_the_id_of_the_request_that_sent_it(lines: StringIO) -> None:
    sent: dict[str, Any] = {}
    context_begin("req_1")
    log_context.task_headers(sent)
    context_begin("req_of_another_task")
    print_task.apply(headers=sent)
    print_task.apply()
    first, second = (json.loads(line) for line in lines.getvalue().splitlines())
    assert first["request_id"] == "req_1"
    assert "request_id" not in second


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("form", ["json"])
def test_what_vmhost_writes_about_an_operation_names_request_operation_and_workspace(
    api: Caller, vmhost: FakeHost, lines: StringIO
) -> None:
    vmhost.driver.fail_next("create", InvalidMachineState("The backend says no."))
    made = api.send("POST", "/workspace", {"wait_ready": False}, X_Request_ID="req_of_create").json()["workspace"]["id"]
    vmhost.settle()
    written = [json.loads(line) for line in lines.getvalue().splitlines()]
    about = [line for line in written if line.get("operation_id")]
    assert about
    assert {line["workspace_id"] for line in about} == {made}
