"""Log lines say what they are about: the request, the operation, the workspace; as text and as JSON."""

from __future__ import annotations

import asyncio
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
from common.async_threads import in_body_thread, in_pool_thread, in_render_thread
from common.log_context import LogContextFilter, begin_context, operation_logged, set_logged_workspace
from common.log_json import JsonLines
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.sandboxes.conftest import LEVEL_URLS, Holder, holder
from vmbackend.errors import InvalidMachineState
from workspaces.power import workspace_sleep

__all__ = ["holder"]

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
    begin_context("")


def test_a_line_has_the_ids_of_its_context(lines: StringIO) -> None:
    begin_context("req_1")
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
    begin_context("req_1")
    set_logged_workspace("ws_1")
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
    begin_context("req_1")
    log_context.task_headers(sent)
    begin_context("req_of_another_task")
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
    about = [line for line in written(lines) if line.get("operation_id")]
    assert about
    assert {(line["request_id"], line["workspace_id"]) for line in about} == {("req_of_create", made)}


def written(lines: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


@pytest.mark.parametrize("form", ["json"])
@pytest.mark.parametrize("in_thread", [in_pool_thread, in_body_thread, in_render_thread])
def test_what_a_request_does_in_a_thread_of_a_pool_names_it(lines: StringIO, in_thread: Any) -> None:
    async def serve(request_id: str) -> None:
        begin_context(request_id)
        set_logged_workspace(f"ws_of_{request_id}")
        await in_thread(logger.info, "in the thread")

    async def serve_all() -> None:
        await asyncio.gather(serve("req_1"), serve("req_2"))
        begin_context("")
        await in_thread(logger.info, "of none")

    asyncio.run(serve_all())
    found = [(line.get("request_id"), line.get("workspace_id")) for line in written(lines)]
    assert sorted(found[:2]) == [("req_1", "ws_of_req_1"), ("req_2", "ws_of_req_2")]
    assert found[2:] == [(None, None)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls(LEVEL_URLS)
@pytest.mark.parametrize("form", ["json"])
def test_a_wake_names_the_request_at_the_sandbox_that_caused_it(
    holder: Holder, vmhost: FakeHost, lines: StringIO
) -> None:
    workspace = holder.workspace
    workspace_sleep(workspace=workspace, actor="test")
    vmhost.settle()
    lines.truncate(lines.seek(0))
    assert holder.call(**{"X-Request-ID": "req_at_sandbox"}).status_code == 200
    vmhost.settle()
    assert holder.workspace.status == "running"
    found = [line for line in written(lines) if line["logger"] != "tests.log_context"]
    # Of the thread that asked for the wake, of vmhost, and of the view.
    assert [line["message"].replace(workspace.pk, "ID").split(":")[0] for line in found] == [
        "wake of ID requested by request", "ID woke by request", "in the view",
    ]  # fmt: skip
    assert {(line["request_id"], line["workspace_id"]) for line in found} == {("req_at_sandbox", workspace.pk)}
    assert found[0]["operation_id"] == found[1]["operation_id"]
    assert "operation_id" not in found[2]
